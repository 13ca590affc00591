module pyasynq/json_reader

go 1.21

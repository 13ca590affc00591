// Command asynqmon serves asynqmon's pages and API for the tests of pyasynq.
//
// Its one argument is the URL of Redis. It prints the address on which it listens, and ends with stdin.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
)

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(url string) error {
	redis, err := asynq.ParseRedisURI(url)
	if err != nil {
		return err
	}
	handler := asynqmon.New(asynqmon.Options{RedisConnOpt: redis})
	defer handler.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, handler) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	noteType = "bench:note"
	napType  = "bench:nap"
)

type note struct {
	Number int64  `json:"number"`
	Email  string `json:"email"`
	Sent   int64  `json:"sent"`
	Text   string `json:"text"`
}

type nap struct {
	Seconds float64 `json:"seconds"`
}

type settings struct {
	Concurrency int      `json:"concurrency"`
	Queues      []string `json:"queues"`
}

// handlers run the tasks of the benchmark.
type handlers struct{ counters *counters }

func (h handlers) note(_ context.Context, task *asynq.Task) error {
	var n note
	if err := json.Unmarshal(task.Payload(), &n); err != nil {
		return err
	}
	switch {
	case n.Sent == stay && h.counters.total(1) == 0:
		h.counters.words[staying] = int64(os.Getpid())
		h.counters.started()
		select {} // until this process is killed
	case n.Sent > 0:
		h.counters.note(n.Number, time.Duration(time.Now().UnixNano()-n.Sent))
	}
	h.counters.hit()
	return nil
}

func (h handlers) nap(_ context.Context, task *asynq.Task) error {
	var n nap
	if err := json.Unmarshal(task.Payload(), &n); err != nil {
		return err
	}
	h.counters.started()
	time.Sleep(time.Duration(n.Seconds * float64(time.Second)))
	h.counters.hit()
	return nil
}

func work(text string) error {
	wanted := settings{Concurrency: 100, Queues: []string{"default"}}
	if err := json.Unmarshal([]byte(text), &wanted); err != nil {
		return err
	}
	shared, err := mapCounters()
	if err != nil {
		return err
	}
	shared.attach()
	redis, err := asynq.ParseRedisURI(os.Getenv("BENCH_REDIS_URL"))
	if err != nil {
		return err
	}
	queues := map[string]int{}
	for _, queue := range wanted.Queues {
		queues[queue] = 1
	}
	server := asynq.NewServer(redis, asynq.Config{Concurrency: wanted.Concurrency, Queues: queues, LogLevel: asynq.ErrorLevel})
	mux := asynq.NewServeMux()
	mux.HandleFunc(noteType, handlers{shared}.note)
	mux.HandleFunc(napType, handlers{shared}.nap)
	if err := server.Start(mux); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	log.Printf("stopped by %s", <-ended)
	server.Shutdown()
	return nil
}

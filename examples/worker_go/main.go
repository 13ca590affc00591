// A worker of pyasynq's task service in Go, with the standard library alone.
// It leases tasks over HTTP, extends their leases while handlers run, obeys cancellations, and drains at TERM.
//
//	PYASYNQ_SERVICE=http://127.0.0.1:8080 PYASYNQ_KEY=... go run main.go resize
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	concurrency = 4
	settleFor   = 55 * time.Second
)

var (
	lease = findLease() // seconds
	third = time.Duration(lease / 3 * float64(time.Second))
)

func findLease() float64 {
	if seconds, err := strconv.ParseFloat(os.Getenv("LEASE_SECONDS"), 64); err == nil {
		return seconds
	}
	return 30
}

type task struct {
	Token, ID, Type, Queue string
	Payload                json.RawMessage
	Attempt                int
	Deadline               time.Time
}

// handle is your code. It ends early when ctx is done.
func handle(ctx context.Context, t task) (any, error) {
	var params struct {
		Number  *int
		Seconds float64
	}
	if err := json.Unmarshal(t.Payload, &params); err != nil {
		return nil, err
	}
	if params.Number == nil {
		return nil, errors.New("number is missing")
	}
	select {
	case <-time.After(time.Duration(params.Seconds * float64(time.Second))):
		return map[string]int{"double": 2 * *params.Number}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// post sends a request once; the status is 0 without an answer. An answer that has begun to arrive is read
// to its end, whatever ctx says: it may have a task.
func post(ctx context.Context, path string, body any, answer any) int {
	data, err := json.Marshal(body)
	if err != nil {
		return 0
	}
	call, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	keep := context.AfterFunc(ctx, cancel)
	request, err := http.NewRequestWithContext(call, "POST", os.Getenv("PYASYNQ_SERVICE")+path, bytes.NewReader(data))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if key := os.Getenv("PYASYNQ_KEY"); key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(request)
	keep()
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0
	}
	if answer != nil && response.StatusCode == 200 && json.Unmarshal(content, answer) != nil {
		return 0
	}
	return response.StatusCode
}

// settle repeats a request until it is answered: the service recognises a repeat.
func settle(token, act string, body map[string]any) int {
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	for ctx.Err() == nil {
		if status := post(ctx, "/v1/attempts/"+token+":"+act, body, nil); status != 0 && status != 429 && status < 500 {
			return status
		}
		time.Sleep(time.Second)
	}
	return 0
}

// run works on a task while another goroutine extends its lease, and settles it.
func run(t task) {
	ctx, cancel := context.WithDeadline(context.Background(), t.Deadline)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	lost, extended := errors.New("the lease is lost"), make(chan struct{})
	finished := make(chan struct{})
	go func() { // the only one to touch t.Token until `extended` is closed
		defer close(extended)
		ends, pause := time.Now().Add(3*third), third
		for {
			select {
			case <-finished:
				return
			case <-time.After(pause):
			}
			var answer struct{ Token string }
			asked := time.Now()
			pause = min(time.Second, third)
			call, done := context.WithTimeout(context.Background(), third)
			switch status := post(call, "/v1/attempts/"+t.Token+":extend", map[string]any{"lease": lease}, &answer); {
			case status == 200:
				t.Token, ends, pause = answer.Token, asked.Add(3*third), third
			case status == 404 || status == 409 || status == 410 || time.Now().After(ends):
				stop(lost) // cancelled, timed out, or given to another worker
			}
			done()
		}
	}()
	result, err := handle(ctx, t)
	close(finished)
	<-extended
	status := 0
	switch {
	case context.Cause(ctx) == lost:
		return
	case err != nil:
		status = settle(t.Token, "fail", map[string]any{"error": err.Error()})
	default:
		status = settle(t.Token, "complete", map[string]any{"result": result})
	}
	if status != 204 {
		log.Printf("the outcome of task %q does not count: %d", t.ID, status)
	}
}

func main() {
	draining, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	worker := map[string]any{"name": "go example", "language": "go", "pid": os.Getpid()}
	for draining.Err() == nil {
		slots <- struct{}{} // waits for a free slot
		var answer struct{ Tasks []task }
		request := map[string]any{"queues": os.Args[1:], "limit": 1, "wait": 20, "lease": lease, "worker": worker}
		status := post(draining, "/v1/leases", request, &answer)
		if len(answer.Tasks) == 0 {
			<-slots
		}
		for _, leased := range answer.Tasks { // one at most
			running.Add(1)
			go func() {
				defer running.Done()
				run(leased)
				<-slots
			}()
		}
		switch status {
		case 200, 204:
		case 400, 401, 403, 404, 422:
			log.Fatalf("the service refuses this worker: %d", status)
		default:
			select {
			case <-draining.Done():
			case <-time.After(time.Second):
			}
		}
	}
	running.Wait()
}

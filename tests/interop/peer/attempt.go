package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/rate"
)

// outcome is how a handler is to end.
type outcome struct {
	Kind string `json:"kind"`
	// Text is the error's, or the value of the panic.
	Text   string  `json:"text"`
	Result *[]byte `json:"result"`
}

// notFailures begin the texts of errors that spend no retry.
const notFailures = "busy"

func isFailure(err error) bool {
	return !strings.HasPrefix(err.Error(), notFailures)
}

func (o outcome) end(task *asynq.Task) error {
	if o.Result != nil {
		if _, err := task.ResultWriter().Write(*o.Result); err != nil {
			return err
		}
	}
	switch o.Kind {
	case "succeed":
		return nil
	case "fail":
		return errors.New(o.Text)
	case "skip":
		return fmt.Errorf("%s: %w", o.Text, asynq.SkipRetry)
	case "revoke":
		return fmt.Errorf("%s: %w", o.Text, asynq.RevokeTask)
	case "panic":
		panic(o.Text)
	}
	return fmt.Errorf("there is no outcome %q", o.Kind)
}

// attempt is one call of a handler. It waits for orders, and ends early when its context does.
type attempt struct {
	ctx    context.Context
	task   *asynq.Task
	orders chan order
	ended  chan struct{}
}

// An order is carried out by the handler's goroutine. It returns whether the handler ends, and how.
type order func(a *attempt) (ends bool, err error)

func (a *attempt) live() error {
	defer close(a.ended)
	for {
		select {
		case do := <-a.orders:
			if ends, err := do(a); ends {
				return err
			}
		case <-a.ctx.Done():
			return a.ctx.Err()
		}
	}
}

// tell has the handler do something.
func (a *attempt) tell(do order) error {
	select {
	case a.orders <- do:
		return nil
	case <-a.ended:
		return errors.New("the handler has ended")
	}
}

type attemptInfo struct {
	ID       string            `json:"id"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	Payload  []byte            `json:"payload"`
	Headers  map[string]string `json:"headers"`
	Retried  int               `json:"retried"`
	MaxRetry int               `json:"max_retry"`
	Deadline float64           `json:"deadline"`
}

func (a *attempt) info() attemptInfo {
	id, _ := asynq.GetTaskID(a.ctx)
	queue, _ := asynq.GetQueueName(a.ctx)
	retried, _ := asynq.GetRetryCount(a.ctx)
	maxRetry, _ := asynq.GetMaxRetry(a.ctx)
	deadline, _ := a.ctx.Deadline()
	return attemptInfo{
		id, queue, a.task.Type(), a.task.Payload(), a.task.Headers(), retried, maxRetry, unixOf(deadline),
	}
}

// handler begins attempts and keeps them until somebody asks.
type handler struct {
	// script ends the attempts at tasks of these types at once.
	script map[string]outcome
	// begun gets each attempt that waits for orders.
	begun chan *attempt

	mu       sync.Mutex
	attempts map[string]*attempt
}

func newHandler(script map[string]outcome) *handler {
	return &handler{script: script, begun: make(chan *attempt, 10_000), attempts: map[string]*attempt{}}
}

func (h *handler) ProcessTask(ctx context.Context, task *asynq.Task) error {
	if scripted, ok := h.script[task.Type()]; ok {
		return scripted.end(task)
	}
	one := &attempt{ctx, task, make(chan order), make(chan struct{})}
	id, _ := asynq.GetTaskID(ctx)
	h.mu.Lock()
	h.attempts[id] = one
	h.mu.Unlock()
	h.begun <- one
	return one.live()
}

func (h *handler) find(id string) (*attempt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one, ok := h.attempts[id]; ok {
		return one, nil
	}
	return nil, fmt.Errorf("no handler was called with task %q", id)
}

// The semaphore knows its tasks by the context of a handler, so handlers acquire and release.
func semaphoreOrder(p *peer, scope string, tokens int, done chan<- semaphoreReply, release bool) order {
	return func(a *attempt) (bool, error) {
		semaphore := rate.NewSemaphore(olderClient{p.redis.options}, scope, tokens)
		defer semaphore.Close()
		var r semaphoreReply
		if release {
			r.err = semaphore.Release(a.ctx)
		} else {
			r.acquired, r.err = semaphore.Acquire(a.ctx)
		}
		done <- r
		return false, nil
	}
}

type semaphoreReply struct {
	acquired bool
	err      error
}

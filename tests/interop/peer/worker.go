package main

import (
	"errors"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// steps leads a server of one worker: it takes a task when it is told to, and no other part of it reaches Redis.
type steps struct {
	order   []string
	turn    chan struct{}
	closed  chan struct{}
	taken   chan error
	settled chan error

	// These belong to the goroutine of the one worker, or to the caller while it is idle.
	next   bool
	taking bool
	lost   bool
}

func startWorker(p *peer, order []string, retryDelay float64) (*server, error) {
	s := &server{handler: newHandler(nil)}
	s.steps = &steps{
		order:   order,
		turn:    make(chan struct{}),
		closed:  make(chan struct{}),
		taken:   make(chan error, 1),
		settled: make(chan error, 1),
	}
	queues := map[string]int{}
	for i, queue := range order {
		queues[queue] = len(order) - i
	}
	config := serverConfig{Concurrency: 1, Queues: queues, StrictPriority: true, RetryDelay: &retryDelay}.asynq()
	config.TaskCheckInterval = atOnce
	config.ShutdownTimeout = atOnce
	config.DelayedTaskCheckInterval = never
	config.JanitorInterval = never
	client := p.redis.gated(&gate{s.steps.admit, s.steps.passed})
	s.asynq = asynq.NewServerFromRedisClient(client, config)
	return s, s.asynq.Start(s.handler)
}

func (s *steps) admit(one part, queue string) bool {
	switch one {
	case takes:
		// A call that has waited for its turn names an old time, so the turn is that of the next call. One that
		// comes again because Redis did not know the script belongs to the turn that has begun.
		if queue == s.order[0] && !s.taking {
			if s.taking = s.next; s.taking {
				s.next = false
				return true
			}
			select {
			case <-s.turn:
				s.next = true
			case <-s.closed:
			}
		}
		return s.taking
	case settles:
		if s.lost {
			s.settled <- nil
			return false
		}
		return true
	}
	return false
}

func (s *steps) passed(one part, queue string, r response) {
	switch one {
	case takes:
		if !errors.Is(r.err, redis.Nil) || queue == s.order[len(s.order)-1] {
			s.taking = false
			s.taken <- r.err
		}
	case settles:
		// A retry by Asynq's syncer is not counted as a step.
		select {
		case s.settled <- r.err:
		default:
		}
	}
}

func (s *steps) close() { close(s.closed) }

// take has the worker ask its queues once. It returns nil when they are empty.
func (s *server) take() (any, error) {
	select {
	case s.steps.turn <- struct{}{}:
	case <-time.After(patience):
		return nil, errors.New("the worker is busy")
	}
	if err := <-s.steps.taken; errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	select {
	case one := <-s.handler.begun:
		return map[string]any{"attempt": one.info()}, nil
	case err := <-s.steps.settled:
		// The task's deadline is over: its handler was not called.
		return map[string]any{"attempt": nil}, err
	case <-time.After(patience):
		return nil, errors.New("the handler was not called")
	}
}

// finish ends the worker's attempt and waits until its outcome is in Redis.
func (s *server) finish(id string, how outcome) error {
	select {
	case <-s.steps.settled: // of an attempt before
	default:
	}
	if s.steps.lost = how.Kind == "vanish"; s.steps.lost {
		how.Kind = "succeed"
	}
	if err := s.end(id, how); err != nil {
		return err
	}
	select {
	case err := <-s.steps.settled:
		s.steps.lost = false
		return err
	case <-time.After(patience):
		return errors.New("the worker did not settle")
	}
}

// cancel calls for the worker's task and waits until its outcome is in Redis.
func (s *server) cancel(p *peer, id string) error {
	select {
	case <-s.steps.settled: // of an attempt before
	default:
	}
	if err := p.inspector.CancelProcessing(id); err != nil {
		return err
	}
	select {
	case err := <-s.steps.settled:
		return err
	case <-time.After(patience):
		return errors.New("the worker did not settle")
	}
}

func init() {
	register("cancel_taken", func(p *peer, a struct {
		ofServer
		ID string `json:"id"`
	}) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		return nil, s.cancel(p, a.ID)
	})
	register("start_worker", func(p *peer, a struct {
		ofServer
		Queues     []string `json:"queues"`
		RetryDelay float64  `json:"retry_delay"`
	}) (any, error) {
		s, err := startWorker(p, a.Queues, a.RetryDelay)
		if err == nil {
			p.servers[a.Server] = s
		}
		return nil, err
	})
	register("take", func(p *peer, a ofServer) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		return s.take()
	})
	register("finish", func(p *peer, a struct {
		ofServer
		ID      string  `json:"id"`
		Outcome outcome `json:"outcome"`
	}) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		return nil, s.finish(a.ID, a.Outcome)
	})
}

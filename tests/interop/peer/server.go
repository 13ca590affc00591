package main

import (
	"fmt"
	"io"
	"log"
	"time"

	"github.com/hibiken/asynq"
)

const (
	patience = 20 * time.Second
	never    = 1000 * time.Hour
	atOnce   = time.Millisecond
)

// silent keeps what Asynq logs from the terminal.
type silent struct{ *log.Logger }

func newSilent() silent { return silent{log.New(io.Discard, "", 0)} }

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(...any) {}

type serverConfig struct {
	Concurrency              int                `json:"concurrency"`
	Queues                   map[string]int     `json:"queues"`
	StrictPriority           bool               `json:"strict_priority"`
	ShutdownTimeout          float64            `json:"shutdown_timeout"`
	TaskCheckInterval        float64            `json:"task_check_interval"`
	DelayedTaskCheckInterval float64            `json:"delayed_task_check_interval"`
	JanitorInterval          float64            `json:"janitor_interval"`
	RetryDelay               *float64           `json:"retry_delay"`
	GroupGracePeriod         float64            `json:"group_grace_period"`
	GroupMaxDelay            float64            `json:"group_max_delay"`
	GroupMaxSize             int                `json:"group_max_size"`
	Aggregate                bool               `json:"aggregate"`
	Script                   map[string]outcome `json:"script"`
}

func (c serverConfig) asynq() asynq.Config {
	config := asynq.Config{
		Concurrency:              c.Concurrency,
		Queues:                   c.Queues,
		StrictPriority:           c.StrictPriority,
		ShutdownTimeout:          seconds(c.ShutdownTimeout),
		TaskCheckInterval:        seconds(c.TaskCheckInterval),
		DelayedTaskCheckInterval: seconds(c.DelayedTaskCheckInterval),
		JanitorInterval:          seconds(c.JanitorInterval),
		GroupGracePeriod:         seconds(c.GroupGracePeriod),
		GroupMaxDelay:            seconds(c.GroupMaxDelay),
		GroupMaxSize:             c.GroupMaxSize,
		IsFailure:                isFailure,
		Logger:                   newSilent(),
	}
	if c.RetryDelay != nil {
		delay := seconds(*c.RetryDelay)
		config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return delay }
	}
	if c.Aggregate {
		config.GroupAggregator = asynq.GroupAggregatorFunc(aggregateOf)
	}
	return config
}

// server is a server of Asynq whose handlers do as they are told.
type server struct {
	asynq   *asynq.Server
	handler *handler
	steps   *steps
}

func startServer(p *peer, config serverConfig) (*server, error) {
	s := &server{handler: newHandler(config.Script)}
	s.asynq = asynq.NewServerFromRedisClient(p.redis.client, config.asynq())
	return s, s.asynq.Start(s.handler)
}

func (s *server) stop() {
	if s.steps != nil {
		s.steps.close()
	}
	s.asynq.Shutdown()
}

// end tells a handler how to end.
func (s *server) end(id string, how outcome) error {
	one, err := s.handler.find(id)
	if err != nil {
		return err
	}
	return one.tell(func(a *attempt) (bool, error) { return true, how.end(a.task) })
}

func (p *peer) server(name string) (*server, error) {
	if s, ok := p.servers[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("there is no server %q", name)
}

type ofServer struct {
	Server string `json:"server"`
}

type semaphoreArguments struct {
	ofServer
	ID     string `json:"id"`
	Scope  string `json:"scope"`
	Tokens int    `json:"tokens"`
}

func (a semaphoreArguments) ask(p *peer, release bool) (any, error) {
	s, err := p.server(a.Server)
	if err != nil {
		return nil, err
	}
	one, err := s.handler.find(a.ID)
	if err != nil {
		return nil, err
	}
	done := make(chan semaphoreReply, 1)
	if err := one.tell(semaphoreOrder(p, a.Scope, a.Tokens, done, release)); err != nil {
		return nil, err
	}
	r := <-done
	return r.acquired, r.err
}

func init() {
	register("start_server", func(p *peer, a struct {
		ofServer
		Config serverConfig `json:"config"`
	}) (any, error) {
		s, err := startServer(p, a.Config)
		if err == nil {
			p.servers[a.Server] = s
		}
		return nil, err
	})
	register("stop_server", func(p *peer, a ofServer) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		delete(p.servers, a.Server)
		s.stop()
		return nil, nil
	})
	register("pause_server", func(p *peer, a ofServer) (any, error) {
		s, err := p.server(a.Server)
		if err == nil {
			s.asynq.Stop()
		}
		return nil, err
	})
	register("next_attempt", func(p *peer, a struct {
		ofServer
		Timeout float64 `json:"timeout"`
	}) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		select {
		case one := <-s.handler.begun:
			return one.info(), nil
		case <-time.After(seconds(a.Timeout)):
			return nil, nil
		}
	})
	register("end_attempt", func(p *peer, a struct {
		ofServer
		ID      string  `json:"id"`
		Outcome outcome `json:"outcome"`
	}) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		return nil, s.end(a.ID, a.Outcome)
	})
	register("has_ended", func(p *peer, a struct {
		ofServer
		ID      string  `json:"id"`
		Timeout float64 `json:"timeout"`
	}) (any, error) {
		s, err := p.server(a.Server)
		if err != nil {
			return nil, err
		}
		one, err := s.handler.find(a.ID)
		if err != nil {
			return nil, err
		}
		select {
		case <-one.ended:
			return true, nil
		case <-time.After(seconds(a.Timeout)):
			return false, nil
		}
	})
	register("acquire", func(p *peer, a semaphoreArguments) (any, error) { return a.ask(p, false) })
	register("release", func(p *peer, a semaphoreArguments) (any, error) { return a.ask(p, true) })
}

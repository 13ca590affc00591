package main

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

// round runs one round of a background part in a server of its own.
func (p *peer) round(config asynq.Config, does []part, over func(one part, r response) bool) error {
	finished, closed := make(chan struct{}), make(chan struct{})
	running := func() bool {
		select {
		case <-finished:
			return false
		default:
			return true
		}
	}
	g := &gate{
		admit: func(one part, _ string) bool {
			if one == takes {
				<-closed
				return false
			}
			for _, wanted := range does {
				if one == wanted {
					return running()
				}
			}
			return false
		},
		passed: func(one part, _ string, r response) {
			if over(one, r) {
				close(finished)
			}
		},
	}
	config.Concurrency = 1
	config.TaskCheckInterval = atOnce
	config.IsFailure = isFailure
	config.Logger = newSilent()
	s := asynq.NewServerFromRedisClient(p.redis.gated(g), config)
	nothing := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	if err := s.Start(nothing); err != nil {
		return err
	}
	var err error
	select {
	case <-finished:
	case <-time.After(patience):
		err = errors.New("the round did not end")
	}
	close(closed)
	s.Shutdown()
	return err
}

type roundArguments struct {
	Queues     []string `json:"queues"`
	RetryDelay float64  `json:"retry_delay"`
}

// config returns that of a server whose parts all rest.
func (a roundArguments) config() asynq.Config {
	queues := map[string]int{}
	for _, queue := range a.Queues {
		queues[queue] = 1
	}
	delay := seconds(a.RetryDelay)
	return asynq.Config{
		Queues:                   queues,
		DelayedTaskCheckInterval: never,
		JanitorInterval:          never,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return delay },
	}
}

// ended returns a function that counts replies that end something, and says when all have come.
func ended(count int, ends func(one part, r response) bool) func(part, response) bool {
	return func(one part, r response) bool {
		if !ends(one, r) {
			return false
		}
		count--
		return count == 0
	}
}

func repliedZero(_ part, r response) bool { return r.number() == 0 }

func init() {
	register("forward", func(p *peer, a roundArguments) (any, error) {
		config := a.config()
		config.DelayedTaskCheckInterval = atOnce
		// Each queue has two sets, and each is asked again until it has nothing left.
		return nil, p.round(config, []part{forwards}, ended(2*len(a.Queues), repliedZero))
	})
	register("delete_expired", func(p *peer, a roundArguments) (any, error) {
		config := a.config()
		config.JanitorInterval = atOnce
		return nil, p.round(config, []part{deletesExpired}, ended(len(a.Queues), repliedZero))
	})
	register("recover", func(p *peer, a roundArguments) (any, error) {
		parts := []part{listsExpired, settles, reclaims}
		isReclaim := func(one part, _ response) bool { return one == reclaims }
		return nil, p.round(a.config(), parts, ended(len(a.Queues), isReclaim))
	})
}

package main

import (
	"fmt"

	"github.com/hibiken/asynq"
)

type ofScheduler struct {
	Scheduler string `json:"scheduler"`
}

func (p *peer) scheduler(name string) (*asynq.Scheduler, error) {
	if s, ok := p.schedulers[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("there is no scheduler %q", name)
}

func init() {
	register("new_scheduler", func(p *peer, a struct {
		ofScheduler
		HeartbeatInterval float64 `json:"heartbeat_interval"`
	}) (any, error) {
		p.schedulers[a.Scheduler] = asynq.NewSchedulerFromRedisClient(p.redis.client, &asynq.SchedulerOpts{
			HeartbeatInterval: seconds(a.HeartbeatInterval),
			Logger:            newSilent(),
		})
		return nil, nil
	})
	register("register_entry", func(p *peer, a struct {
		ofScheduler
		Spec    string  `json:"spec"`
		Task    newTask `json:"task"`
		Options options `json:"options"`
	}) (any, error) {
		s, err := p.scheduler(a.Scheduler)
		if err != nil {
			return nil, err
		}
		return s.Register(a.Spec, a.Task.task(), a.Options.list()...)
	})
	register("unregister_entry", func(p *peer, a struct {
		ofScheduler
		EntryID string `json:"entry_id"`
	}) (any, error) {
		s, err := p.scheduler(a.Scheduler)
		if err != nil {
			return nil, err
		}
		return nil, s.Unregister(a.EntryID)
	})
	register("start_scheduler", func(p *peer, a ofScheduler) (any, error) {
		s, err := p.scheduler(a.Scheduler)
		if err != nil {
			return nil, err
		}
		return nil, s.Start()
	})
	register("stop_scheduler", func(p *peer, a ofScheduler) (any, error) {
		s, err := p.scheduler(a.Scheduler)
		if err != nil {
			return nil, err
		}
		delete(p.schedulers, a.Scheduler)
		s.Shutdown()
		return nil, nil
	})
}

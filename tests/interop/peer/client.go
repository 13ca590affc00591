package main

import (
	"runtime/debug"

	"github.com/hibiken/asynq"
)

func init() {
	register("enqueue", func(p *peer, a struct {
		Task    newTask `json:"task"`
		Options options `json:"options"`
	}) (any, error) {
		info, err := p.client.Enqueue(a.Task.task(), a.Options.list()...)
		if err != nil {
			return nil, err
		}
		return infoOf(info), nil
	})
	register("option_texts", func(_ *peer, a options) (any, error) {
		texts := []string{}
		for _, option := range a.list() {
			texts = append(texts, option.String())
		}
		return texts, nil
	})
	register("new_client", func(p *peer, _ struct{}) (any, error) {
		// A client remembers the queues that it has registered, so a database that was emptied needs a new one.
		p.client = asynq.NewClientFromRedisClient(p.redis.client)
		return nil, nil
	})
	register("versions", func(_ *peer, _ struct{}) (any, error) {
		versions := map[string]string{}
		if build, ok := debug.ReadBuildInfo(); ok {
			for _, module := range build.Deps {
				versions[module.Path] = module.Version
			}
		}
		return versions, nil
	})
}

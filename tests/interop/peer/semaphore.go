package main

import (
	older "github.com/go-redis/redis/v8"
	"github.com/redis/go-redis/v9"
)

// olderClient connects the semaphore, which was written for an older Redis client than Asynq itself.
type olderClient struct{ options *redis.Options }

func (c olderClient) MakeRedisClient() any {
	return older.NewClient(&older.Options{
		Network: c.options.Network,
		Addr:    c.options.Addr,
		DB:      c.options.DB,
	})
}

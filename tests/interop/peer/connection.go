package main

import (
	"time"

	"github.com/redis/go-redis/v9"
)

const replyTimeout = 30 * time.Second

// connection is one pool of connections to Redis. Everything in this process shares it.
type connection struct {
	client  *redis.Client
	options *redis.Options
}

func newConnection(network, address string, database int) connection {
	options := &redis.Options{
		Network:      network,
		Addr:         address,
		DB:           database,
		PoolSize:     64,
		ReadTimeout:  replyTimeout,
		WriteTimeout: replyTimeout,
	}
	return connection{redis.NewClient(options), options}
}

// gated returns a client of the same pool whose commands go through a gate.
func (c connection) gated(g *gate) *redis.Client {
	client := c.client.WithTimeout(replyTimeout)
	client.AddHook(g)
	return client
}

func (c connection) close() {
	_ = c.client.Close()
}

// Command collector serves the metrics of Asynq's own Prometheus collector for the tests of pyasynq.
//
// Its one argument is the URL of Redis. It prints the address on which it listens, and ends with stdin.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(url string) error {
	redis, err := asynq.ParseRedisURI(url)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewQueueMetricsCollector(asynq.NewInspector(redis)))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

package main

import (
	"fmt"

	"github.com/hibiken/asynq"
)

type inQueue struct {
	Queue string `json:"queue"`
	Group string `json:"group"`
}

type ofTask struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
}

type queueInfo struct {
	Queue          string  `json:"queue"`
	MemoryUsage    int64   `json:"memory_usage"`
	Latency        float64 `json:"latency"`
	Size           int     `json:"size"`
	Groups         int     `json:"groups"`
	Pending        int     `json:"pending"`
	Active         int     `json:"active"`
	Scheduled      int     `json:"scheduled"`
	Retry          int     `json:"retry"`
	Archived       int     `json:"archived"`
	Completed      int     `json:"completed"`
	Aggregating    int     `json:"aggregating"`
	Processed      int     `json:"processed"`
	Failed         int     `json:"failed"`
	ProcessedTotal int     `json:"processed_total"`
	FailedTotal    int     `json:"failed_total"`
	Paused         bool    `json:"paused"`
	Timestamp      float64 `json:"timestamp"`
}

type day struct {
	Queue     string `json:"queue"`
	Day       string `json:"day"`
	Processed int    `json:"processed"`
	Failed    int    `json:"failed"`
}

type workerInfo struct {
	TaskID   string  `json:"task_id"`
	TaskType string  `json:"task_type"`
	Payload  []byte  `json:"payload"`
	Queue    string  `json:"queue"`
	Started  float64 `json:"started"`
	Deadline float64 `json:"deadline"`
}

type serverInfo struct {
	ID             string         `json:"id"`
	Host           string         `json:"host"`
	PID            int            `json:"pid"`
	Concurrency    int            `json:"concurrency"`
	Queues         map[string]int `json:"queues"`
	StrictPriority bool           `json:"strict_priority"`
	Started        float64        `json:"started"`
	Status         string         `json:"status"`
	ActiveWorkers  []workerInfo   `json:"active_workers"`
}

type schedulerEntry struct {
	ID      string   `json:"id"`
	Spec    string   `json:"spec"`
	Type    string   `json:"type"`
	Payload []byte   `json:"payload"`
	Options []string `json:"options"`
	Next    float64  `json:"next"`
	Prev    float64  `json:"prev"`
}

type enqueueEvent struct {
	TaskID     string  `json:"task_id"`
	EnqueuedAt float64 `json:"enqueued_at"`
}

type page struct {
	Page     int `json:"page"`
	PageSize int `json:"page_size"`
}

func (p page) options() []asynq.ListOption {
	var options []asynq.ListOption
	if p.Page != 0 {
		options = append(options, asynq.Page(p.Page))
	}
	if p.PageSize != 0 {
		options = append(options, asynq.PageSize(p.PageSize))
	}
	return options
}

// Each bulk operation of Asynq is a method for one state.
type bulk func(i *asynq.Inspector, a inQueue) (int, error)

var runAll = map[string]bulk{
	"scheduled":   func(i *asynq.Inspector, a inQueue) (int, error) { return i.RunAllScheduledTasks(a.Queue) },
	"retry":       func(i *asynq.Inspector, a inQueue) (int, error) { return i.RunAllRetryTasks(a.Queue) },
	"archived":    func(i *asynq.Inspector, a inQueue) (int, error) { return i.RunAllArchivedTasks(a.Queue) },
	"aggregating": func(i *asynq.Inspector, a inQueue) (int, error) { return i.RunAllAggregatingTasks(a.Queue, a.Group) },
}

var archiveAll = map[string]bulk{
	"pending":   func(i *asynq.Inspector, a inQueue) (int, error) { return i.ArchiveAllPendingTasks(a.Queue) },
	"scheduled": func(i *asynq.Inspector, a inQueue) (int, error) { return i.ArchiveAllScheduledTasks(a.Queue) },
	"retry":     func(i *asynq.Inspector, a inQueue) (int, error) { return i.ArchiveAllRetryTasks(a.Queue) },
	"aggregating": func(i *asynq.Inspector, a inQueue) (int, error) {
		return i.ArchiveAllAggregatingTasks(a.Queue, a.Group)
	},
}

var deleteAll = map[string]bulk{
	"pending":     func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllPendingTasks(a.Queue) },
	"scheduled":   func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllScheduledTasks(a.Queue) },
	"retry":       func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllRetryTasks(a.Queue) },
	"archived":    func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllArchivedTasks(a.Queue) },
	"completed":   func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllCompletedTasks(a.Queue) },
	"aggregating": func(i *asynq.Inspector, a inQueue) (int, error) { return i.DeleteAllAggregatingTasks(a.Queue, a.Group) },
}

func registerBulk(name string, operations map[string]bulk) {
	register(name, func(p *peer, a struct {
		inQueue
		State string `json:"state"`
	}) (any, error) {
		operation, ok := operations[a.State]
		if !ok {
			return nil, fmt.Errorf("asynq has no %s for the state %q", name, a.State)
		}
		return operation(p.inspector, a.inQueue)
	})
}

func listTasks(i *asynq.Inspector, state string, a inQueue, page page) ([]*asynq.TaskInfo, error) {
	switch options := page.options(); state {
	case "pending":
		return i.ListPendingTasks(a.Queue, options...)
	case "active":
		return i.ListActiveTasks(a.Queue, options...)
	case "scheduled":
		return i.ListScheduledTasks(a.Queue, options...)
	case "retry":
		return i.ListRetryTasks(a.Queue, options...)
	case "archived":
		return i.ListArchivedTasks(a.Queue, options...)
	case "completed":
		return i.ListCompletedTasks(a.Queue, options...)
	case "aggregating":
		return i.ListAggregatingTasks(a.Queue, a.Group, options...)
	}
	return nil, fmt.Errorf("there is no state %q", state)
}

// registerTaskAction adds a call that does something to one task.
func registerTaskAction(name string, do func(i *asynq.Inspector, queue, id string) error) {
	register(name, func(p *peer, a ofTask) (any, error) {
		return nil, do(p.inspector, a.Queue, a.ID)
	})
}

func init() {
	registerBulk("run_all", runAll)
	registerBulk("archive_all", archiveAll)
	registerBulk("delete_all", deleteAll)
	registerTaskAction("run_task", (*asynq.Inspector).RunTask)
	registerTaskAction("archive_task", (*asynq.Inspector).ArchiveTask)
	registerTaskAction("delete_task", (*asynq.Inspector).DeleteTask)
	register("update_payload", func(p *peer, a struct {
		ofTask
		Payload []byte `json:"payload"`
	}) (any, error) {
		return nil, p.inspector.UpdateTaskPayload(a.Queue, a.ID, a.Payload)
	})
	register("cancel", func(p *peer, a ofTask) (any, error) {
		return nil, p.inspector.CancelProcessing(a.ID)
	})
	register("task_info", func(p *peer, a ofTask) (any, error) {
		info, err := p.inspector.GetTaskInfo(a.Queue, a.ID)
		if err != nil {
			return nil, err
		}
		return infoOf(info), nil
	})
	register("list_tasks", func(p *peer, a struct {
		inQueue
		page
		State string `json:"state"`
	}) (any, error) {
		tasks, err := listTasks(p.inspector, a.State, a.inQueue, a.page)
		return infosOf(tasks), err
	})
	registerQueueCalls()
	registerFleetCalls()
}

func registerQueueCalls() {
	register("queues", func(p *peer, _ struct{}) (any, error) {
		return p.inspector.Queues()
	})
	register("groups", func(p *peer, a inQueue) (any, error) {
		groups, err := p.inspector.Groups(a.Queue)
		sizes := map[string]int{}
		for _, group := range groups {
			sizes[group.Group] = group.Size
		}
		return sizes, err
	})
	register("queue_info", func(p *peer, a inQueue) (any, error) {
		info, err := p.inspector.GetQueueInfo(a.Queue)
		if err != nil {
			return nil, err
		}
		return queueInfo{
			Queue:          info.Queue,
			MemoryUsage:    info.MemoryUsage,
			Latency:        info.Latency.Seconds(),
			Size:           info.Size,
			Groups:         info.Groups,
			Pending:        info.Pending,
			Active:         info.Active,
			Scheduled:      info.Scheduled,
			Retry:          info.Retry,
			Archived:       info.Archived,
			Completed:      info.Completed,
			Aggregating:    info.Aggregating,
			Processed:      info.Processed,
			Failed:         info.Failed,
			ProcessedTotal: info.ProcessedTotal,
			FailedTotal:    info.FailedTotal,
			Paused:         info.Paused,
			Timestamp:      unixOf(info.Timestamp),
		}, nil
	})
	register("history", func(p *peer, a struct {
		Queue string `json:"queue"`
		Days  int    `json:"days"`
	}) (any, error) {
		history, err := p.inspector.History(a.Queue, a.Days)
		days := make([]day, len(history))
		for i, one := range history {
			days[i] = day{one.Queue, one.Date.Format("2006-01-02"), one.Processed, one.Failed}
		}
		return days, err
	})
	register("pause_queue", func(p *peer, a inQueue) (any, error) {
		return nil, p.inspector.PauseQueue(a.Queue)
	})
	register("unpause_queue", func(p *peer, a inQueue) (any, error) {
		return nil, p.inspector.UnpauseQueue(a.Queue)
	})
	register("remove_queue", func(p *peer, a struct {
		Queue string `json:"queue"`
		Force bool   `json:"force"`
	}) (any, error) {
		return nil, p.inspector.DeleteQueue(a.Queue, a.Force)
	})
	register("cluster_key_slot", func(p *peer, a inQueue) (any, error) {
		return p.inspector.ClusterKeySlot(a.Queue)
	})
}

func registerFleetCalls() {
	register("servers", func(p *peer, _ struct{}) (any, error) {
		found, err := p.inspector.Servers()
		servers := make([]serverInfo, len(found))
		for i, one := range found {
			servers[i] = serverInfoOf(one)
		}
		return servers, err
	})
	register("scheduler_entries", func(p *peer, _ struct{}) (any, error) {
		found, err := p.inspector.SchedulerEntries()
		entries := make([]schedulerEntry, len(found))
		for i, one := range found {
			options := make([]string, len(one.Opts))
			for n, option := range one.Opts {
				options[n] = option.String()
			}
			entries[i] = schedulerEntry{
				one.ID, one.Spec, one.Task.Type(), one.Task.Payload(), options, unixOf(one.Next), unixOf(one.Prev),
			}
		}
		return entries, err
	})
	register("scheduler_events", func(p *peer, a struct {
		page
		EntryID string `json:"entry_id"`
	}) (any, error) {
		found, err := p.inspector.ListSchedulerEnqueueEvents(a.EntryID, a.page.options()...)
		events := make([]enqueueEvent, len(found))
		for i, one := range found {
			events[i] = enqueueEvent{one.TaskID, unixOf(one.EnqueuedAt)}
		}
		return events, err
	})
}

func serverInfoOf(one *asynq.ServerInfo) serverInfo {
	workers := make([]workerInfo, len(one.ActiveWorkers))
	for i, w := range one.ActiveWorkers {
		workers[i] = workerInfo{
			w.TaskID, w.TaskType, w.TaskPayload, w.Queue, unixOf(w.Started), unixOf(w.Deadline),
		}
	}
	return serverInfo{
		ID:             one.ID,
		Host:           one.Host,
		PID:            one.PID,
		Concurrency:    one.Concurrency,
		Queues:         one.Queues,
		StrictPriority: one.StrictPriority,
		Started:        unixOf(one.Started),
		Status:         one.Status,
		ActiveWorkers:  workers,
	}
}

<?php

declare(strict_types=1);

namespace Pyasynq;

/** Leases tasks over HTTP in this process, and runs handlers in child processes. */
final class Worker
{
    private const LATER = [0, 429, 500, 502, 503, 504];
    private const LASTING = [400, 401, 403, 404, 405, 413, 422];
    private const POLL_SECONDS = 20.0;
    private const SETTLE_SECONDS = 55.0;
    /** A signal that comes just before a wait does not end the wait. */
    private const LOOK_SECONDS = 1.0;
    /** Of the time of a task, for the kill of its handler and for its outcome, but not more than the seconds. */
    private const MARGIN_PART = 0.05;
    private const MARGIN_SECONDS = 1.0;

    private readonly Address $address;
    /** @var array<string, callable> */
    private array $handlers = [];
    /** @var list<callable> */
    private array $middlewares = [];
    /** @var array<int, array<string, mixed>|null> the task of each slot; null while it has none */
    private array $tasks = [];
    /** @var array<int, int> process of each slot */
    private array $processes = [];
    /** @var array<int, Pipe> */
    private array $pipes = [];
    private ?Pipe $guard = null;
    /** Begins the mark of a child. */
    private readonly string $secret;
    private \CurlMultiHandle $multi;
    /** @var array<int, array{\CurlHandle, \Closure}> requests under way */
    private array $requests = [];
    /** @var array<int|string, array{float, \Closure}> what runs later; a slot's timers replace those of its last task */
    private array $timers = [];
    private bool $isPolling = false;
    private ?\CurlHandle $poll = null;
    /** Wakes the wait for curl when the guard or a child has sent something. */
    private \CurlHandle $wakeUp;
    private float $pause = 0.25;
    private int $signals = 0;
    private bool $wasCut = false;
    private string $refusal = '';
    private int $taken = 0;

    public function __construct(
        ?string $service = null,
        #[\SensitiveParameter] ?string $key = null,
        private readonly int $concurrency = 1,
        private readonly ?int $maxTasks = null,
        private readonly ?int $maxMemory = null,
        private readonly ?float $maxTime = null,
        private readonly float $lease = 30.0,
    ) {
        Requirements::check(['curl', 'json', 'pcntl', 'posix']);
        $this->address = new Address($service, $key);
        $this->secret = random_bytes(16);
        if ($concurrency < 1 || $concurrency > 100) {
            throw new \InvalidArgumentException('concurrency: give 1 to 100 children');
        }
    }

    /** Call this for tasks of a type, which is also the name of their queue. */
    public function on(string $type, callable $handler): static
    {
        $this->handlers[$type] = $handler;
        return $this;
    }

    /** Put a function around all handlers; the first one is outermost. It gets ($params, $context, $next). */
    public function use(callable $middleware): static
    {
        $this->middlewares[] = $middleware;
        return $this;
    }

    /** Lease and run tasks until a signal or a limit; return the exit code: 0, 1 refused, 3 children killed. */
    public function run(): int
    {
        if ($this->handlers === []) {
            throw new \LogicException('the worker has no handler: call on() first');
        }
        $this->fork();
        pcntl_async_signals(true);
        foreach ([SIGTERM, SIGINT] as $signal) {
            pcntl_signal($signal, function (): void {
                $this->signals++;
            });
        }
        $began = microtime(true);
        $cut = false;
        while (true) {
            if ($this->maxTime !== null && microtime(true) - $began > $this->maxTime) {
                $this->signals = max(1, $this->signals);
            }
            if ($this->signals > 0 && $this->isPolling) {
                $this->stopPoll();
            }
            if ($this->signals > 1 && !$cut) {
                $cut = true;
                foreach (array_keys($this->tasks) as $slot) {
                    $this->wasCut = $this->wasCut || $this->tasks[$slot] !== null;
                    $this->kill($slot, 'stopped');
                }
            }
            $isEnding = $this->signals > 0 || $this->refusal !== '';
            if ($isEnding && !$this->isPolling && $this->requests === [] && !array_filter($this->tasks)) {
                break;
            }
            if (!$isEnding && !$this->isPolling) {
                $this->lease();
            }
            $this->step();
        }
        if ($this->refusal !== '') {
            fwrite(STDERR, "{$this->refusal}\n");
        }
        return $this->refusal !== '' ? 1 : ($this->wasCut ? 3 : 0);
    }

    private function fork(): void
    {
        $wakeUp = new WakeUp();
        [$ours, $theirs] = Pipe::pair();
        $ends = [];
        for ($slot = 0; $slot < $this->concurrency; $slot++) {
            [$this->pipes[$slot], $ends[$slot]] = Pipe::pair();
            $this->tasks[$slot] = null;
        }
        $process = pcntl_fork();
        if ($process === -1) {
            throw new \RuntimeException('no process can be started');
        }
        if ($process === 0) {
            fclose($ours->stream);
            foreach ($this->pipes as $pipe) {
                fclose($pipe->stream);
            }
            $child = new Child($this->handlers, $this->middlewares, $this->maxTasks, $this->maxMemory, $this->secret);
            (new Guard($theirs, $ends, $wakeUp, $child->run(...)))->run();
        }
        fclose($theirs->stream);
        foreach ($ends as $end) {
            fclose($end->stream);
        }
        $this->guard = $ours;
        $this->multi = curl_multi_init();
        $this->wakeUp = $wakeUp->prepare();
        curl_multi_add_handle($this->multi, $this->wakeUp);
        $wakeUp->close();
    }

    /** Wait for the next event of HTTP, children or time, and handle it. */
    private function step(): void
    {
        do {
            $status = curl_multi_exec($this->multi, $active);
        } while ($status === CURLM_CALL_MULTI_PERFORM);
        $isWakeUpBroken = false;
        while (($done = curl_multi_info_read($this->multi)) !== false) {
            if ($done['handle'] === $this->wakeUp) {
                $isWakeUpBroken = true;
            } else {
                $this->finish($done['handle'], $done['result']);
            }
        }
        if (!$isWakeUpBroken) {
            $this->await();
        }
        $this->hearChildren();
        if ($isWakeUpBroken) {
            throw new \RuntimeException('the guard process has closed its connection: tasks come back after their leases');
        }
        $now = microtime(true);
        foreach ($this->timers as $key => [$at, $call]) {
            if ($at <= $now) {
                unset($this->timers[$key]);
                $call();
            }
        }
    }

    /** Wait for an answer, a message of a child or the guard, the next timer, or a signal. */
    private function await(): void
    {
        $times = array_map(static fn (array $timer): float => $timer[0], $this->timers);
        $seconds = max(0.0, min([self::LOOK_SECONDS, ...array_map(fn (float $at): float => $at - microtime(true), $times)]));
        $began = microtime(true);
        // It returns at once while curl has no connection to wait for.
        if (curl_multi_select($this->multi, $seconds) < 1 && microtime(true) - $began < 0.001) {
            usleep(1_000);
        }
    }

    private function hearChildren(): void
    {
        $news = $this->guard->poll();
        foreach ($this->pipes as $slot => $pipe) {
            foreach ($pipe->poll() ?? [] as [$taskNumber, $act, $body, $isLast]) {
                if ($isLast) {
                    // No task for a child that ends: its successor is told by the guard.
                    unset($this->processes[$slot]);
                }
                if (($this->tasks[$slot]['number'] ?? 0) === $taskNumber) {
                    $this->settle($slot, $act, $body);
                }
            }
        }
        if ($news === null) {
            foreach ($this->processes as $process) {
                self::killGroup($process);
            }
            throw new \RuntimeException('the guard process has died: its tasks come back after their leases');
        }
        foreach ($news as [$what, $slot, $number, $code]) {
            if ($what === 'born') {
                $this->pipes[$slot]->write(Child::makeMark($this->secret, $number));
                $this->processes[$slot] = $number;
                continue;
            }
            unset($this->processes[$slot]);
            $this->pipes[$slot]->drain();
            $task = $this->tasks[$slot];
            if ($task === null || $task['isSettling']) {
                continue;
            }
            match ($task['cause']) {
                'lost' => $this->tasks[$slot] = null,
                'stopped' => $this->settle($slot, 'release', []),
                'timed-out' => $this->settle($slot, 'fail', ['error' => sprintf(
                    'the task timed out: its handler was killed after %.1F s, at the deadline %s',
                    microtime(true) - $task['startedAt'],
                    $task['deadline'],
                )]),
                default => $this->settle($slot, 'fail', ['error' => $number
                    ? "the handler's process was ended by signal $number" . self::nameSignal($number)
                    : "the handler ended its process, with the exit code $code"]),
            };
        }
    }

    private static function nameSignal(int $number): string
    {
        foreach (['SIGSEGV', 'SIGKILL', 'SIGABRT', 'SIGBUS', 'SIGFPE', 'SIGILL', 'SIGTERM'] as $name) {
            if (constant($name) === $number) {
                return $number === SIGKILL ? " ($name), as the kernel does without memory" : " ($name)";
            }
        }
        return '';
    }

    private function lease(): void
    {
        $free = array_keys(array_filter(
            $this->tasks,
            fn (?array $task, int $slot): bool => $task === null && isset($this->processes[$slot]),
            ARRAY_FILTER_USE_BOTH,
        ));
        if ($free === []) {
            return;
        }
        $this->isPolling = true;
        $askedAt = microtime(true);
        $body = [
            'queues' => array_map(strval(...), array_keys($this->handlers)),
            'limit' => count($free),
            'wait' => self::POLL_SECONDS,
            'lease' => $this->lease,
            'worker' => [
                'name' => 'pyasynq/worker',
                'language' => 'php ' . PHP_VERSION,
                'host' => (string) gethostname(),
                'pid' => getmypid(),
            ],
        ];
        $this->poll = $this->ask('/v1/leases', $body, self::POLL_SECONDS + 30, function (int $status, array $answer, string $error) use ($free, $askedAt): void {
            $this->poll = null;
            foreach ($status === 200 ? $answer['tasks'] ?? [] : [] as $leased) {
                $this->start(array_shift($free), $leased, $askedAt);
            }
            if ($status === 200 || $status === 204) {
                $this->pause = 0.25;
                $this->isPolling = false;
            } elseif (in_array($status, self::LASTING, true)) {
                $this->refusal = Address::describe($status, $answer, $error);
                $this->isPolling = false;
            } else {
                $this->later($this->pause, function (): void {
                    $this->isPolling = false;
                });
                $this->pause = min(10.0, 2 * $this->pause);
            }
        });
    }

    private function stopPoll(): void
    {
        // Without a request, the next one waits for the end of a pause.
        if ($this->poll !== null) {
            // An answer that has begun to arrive is read to its end: it may have tasks.
            if (curl_getinfo($this->poll, CURLINFO_RESPONSE_CODE) !== 0) {
                return;
            }
            unset($this->requests[spl_object_id($this->poll)]);
            curl_multi_remove_handle($this->multi, $this->poll);
            $this->poll = null;
        }
        $this->isPolling = false;
    }

    /** @param array<string, mixed> $leased */
    private function start(int $slot, array $leased, float $askedAt): void
    {
        $number = ++$this->taken;
        $this->tasks[$slot] = [
            'number' => $number,
            'token' => $leased['token'],
            'leaseEnds' => $askedAt + $this->lease,
            'startedAt' => microtime(true),
            'deadline' => $leased['deadline'],
            'cause' => '',
            'isSettling' => false,
        ];
        // The child may have died since the request.
        if (!isset($this->processes[$slot]) || !$this->pipes[$slot]->send([$number, $leased])) {
            $this->settle($slot, 'release', []);
            return;
        }
        $this->later($this->lease / 3, fn () => $this->extend($slot, $number), "extend $slot");
        $left = (new \DateTimeImmutable($leased['deadline']))->format('U.u') - microtime(true);
        // At the deadline the service would settle the task, and no error would name the limit.
        $margin = min(self::MARGIN_SECONDS, $left * self::MARGIN_PART);
        $this->later(max(0.0, $left - $margin), function () use ($slot, $number): void {
            if (($this->tasks[$slot]['number'] ?? 0) === $number) {
                $this->kill($slot, 'timed-out');
            }
        }, "deadline $slot");
    }

    private function extend(int $slot, int $number): void
    {
        $isCurrent = fn (): bool => ($this->tasks[$slot]['number'] ?? 0) === $number && !$this->tasks[$slot]['isSettling'];
        if (!$isCurrent() || $this->tasks[$slot]['cause'] !== '') {
            return;
        }
        $askedAt = microtime(true);
        $third = $this->lease / 3;
        $path = "/v1/attempts/{$this->tasks[$slot]['token']}:extend";
        $this->ask($path, ['lease' => $this->lease], $third, function (int $status, array $answer) use ($slot, $number, $isCurrent, $askedAt, $third): void {
            if (!$isCurrent()) {
                return;
            }
            $pause = min(1.0, $third);
            if ($status === 200) {
                $this->tasks[$slot]['token'] = $answer['token'];
                $this->tasks[$slot]['leaseEnds'] = $askedAt + $this->lease;
                $pause = $third;
            } elseif (in_array($status, [404, 409, 410], true) || microtime(true) > $this->tasks[$slot]['leaseEnds']) {
                $this->kill($slot, 'lost');
                return;
            }
            $this->later($pause, fn () => $this->extend($slot, $number), "extend $slot");
        });
    }

    private function kill(int $slot, string $cause): void
    {
        $task = $this->tasks[$slot];
        if ($task === null || $task['isSettling'] || $task['cause'] !== '') {
            return;
        }
        $this->tasks[$slot]['cause'] = $cause;
        if (isset($this->processes[$slot])) {
            self::killGroup($this->processes[$slot]);
            unset($this->processes[$slot]);
        }
    }

    private static function killGroup(int $process): void
    {
        // The child may not have made its group yet.
        @posix_kill(-$process, SIGKILL);
        @posix_kill($process, SIGKILL);
    }

    /** @param array<string, mixed> $body */
    private function settle(int $slot, string $act, array $body): void
    {
        if ($this->tasks[$slot] === null || $this->tasks[$slot]['isSettling']) {
            return;
        }
        $this->tasks[$slot]['isSettling'] = true;
        $this->sendOutcome($slot, $act, $body, microtime(true) + self::SETTLE_SECONDS, 0.25);
    }

    /** @param array<string, mixed> $body */
    private function sendOutcome(int $slot, string $act, array $body, float $until, float $pause): void
    {
        $path = "/v1/attempts/{$this->tasks[$slot]['token']}:$act";
        $sent = $body === [] ? new \stdClass() : $body;
        $this->ask($path, $sent, 30.0, function (int $status, array $answer, string $error) use ($slot, $act, $body, $until, $pause): void {
            if (in_array($status, self::LATER, true) && microtime(true) < $until) {
                $this->later($pause, fn () => $this->sendOutcome($slot, $act, $body, $until, min(5.0, 2 * $pause)));
                return;
            }
            if (in_array($status, [413, 422], true) && $act === 'complete') {
                $this->sendOutcome($slot, 'fail', ['error' => Address::describe($status, $answer)], $until, $pause);
                return;
            }
            if ($status !== 204) {
                fwrite(STDERR, 'an outcome does not count: ' . Address::describe($status, $answer, $error) . "\n");
            }
            $this->tasks[$slot] = null;
        });
    }

    /** Call a function later; with a name, in place of the former one of this name. */
    private function later(float $seconds, \Closure $call, ?string $name = null): void
    {
        $timer = [microtime(true) + $seconds, $call];
        if ($name === null) {
            $this->timers[] = $timer;
        } else {
            $this->timers[$name] = $timer;
        }
    }

    private function ask(string $path, mixed $body, float $seconds, \Closure $then): \CurlHandle
    {
        $handle = $this->address->prepare('POST', $path, $body, $seconds);
        $this->requests[spl_object_id($handle)] = [$handle, $then];
        curl_multi_add_handle($this->multi, $handle);
        return $handle;
    }

    private function finish(\CurlHandle $handle, int $result): void
    {
        [, $then] = $this->requests[spl_object_id($handle)];
        unset($this->requests[spl_object_id($handle)]);
        [$status, $answer] = $result === CURLE_OK
            ? Address::readAnswer($handle, (string) curl_multi_getcontent($handle))
            : [0, []];
        curl_multi_remove_handle($this->multi, $handle);
        $then($status, $answer, $result === CURLE_OK ? 'the answer was cut' : curl_strerror($result) ?? '');
    }
}

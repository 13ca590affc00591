<?php

declare(strict_types=1);

namespace Pyasynq;

/** A child process: runs handlers, one task after the other. It may block, leak and crash. */
final class Child
{
    /** Settings of PHP whose limits end a process, by the beginning of the error. */
    private const LIMITS = ['Allowed memory size' => 'memory_limit', 'Maximum execution time' => 'max_execution_time'];
    private const FATAL = E_ERROR | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR;

    /** Number of the task that is worked on. */
    private ?int $current = null;

    /**
     * @param array<string, callable> $handlers
     * @param list<callable> $middlewares
     */
    public function __construct(
        private readonly array $handlers,
        private readonly array $middlewares,
        private readonly ?int $maxTasks,
        private readonly ?int $maxMemory,
        private readonly string $secret,
    ) {
    }

    /** What the parent sends a new child before its first task; no payload can hold it. */
    public static function makeMark(string $secret, int $process): string
    {
        return $secret . pack('N', $process);
    }

    public function run(Pipe $parent): void
    {
        // Before it are tasks, or parts of them, that were sent to a child that died.
        if (!$parent->skipTo(self::makeMark($this->secret, (int) getmypid()))) {
            return;
        }
        register_shutdown_function(fn () => $this->tellFatalError($parent));
        for ($done = 1; ($message = $parent->receive()) !== null; $done++) {
            [$number, $leased] = $message;
            $this->current = $number;
            error_clear_last();
            [$act, $body] = $this->work($leased);
            $this->current = null;
            $isLast = ($this->maxMemory !== null && memory_get_usage(true) > $this->maxMemory)
                || ($this->maxTasks !== null && $done >= $this->maxTasks);
            if (!$parent->send([$number, $act, $body, $isLast]) || $isLast) {
                return;
            }
        }
    }

    /** Tell the parent which error of PHP ends this process; a limit is one that no handler can catch. */
    private function tellFatalError(Pipe $parent): void
    {
        $error = error_get_last();
        if ($this->current === null || $error === null || ($error['type'] & self::FATAL) === 0) {
            return;
        }
        // There may be no memory left for the message.
        ini_set('memory_limit', '-1');
        $limit = '';
        foreach (self::LIMITS as $beginning => $setting) {
            if (str_starts_with($error['message'], $beginning)) {
                $limit = " (PHP's $setting)";
            }
        }
        $place = basename($error['file']) . ':' . $error['line'];
        $text = self::cut("{$error['message']}$limit [$place]");
        $parent->send([$this->current, 'fail', ['error' => $text], true]);
    }

    /**
     * @param array<string, mixed> $leased
     * @return array{string, array<string, mixed>} the act that settles, and its body
     */
    private function work(array $leased): array
    {
        try {
            $result = $this->call($leased);
        } catch (Snooze $snooze) {
            return ['snooze', ['delay' => $snooze->delay]];
        } catch (Retry $retry) {
            $delay = $retry->delay === null ? [] : ['delay' => $retry->delay];
            return ['fail', ['error' => self::cut($retry->getMessage()), 'spend' => $retry->spend] + $delay];
        } catch (Archive $archive) {
            return ['fail', ['error' => self::cut($archive->getMessage() ?: 'archived'), 'retry' => false]];
        } catch (\Throwable $error) {
            $place = basename($error->getFile()) . ':' . $error->getLine();
            return ['fail', ['error' => self::cut($error::class . ": {$error->getMessage()} [$place]")]];
        }
        if ($result === null) {
            return ['complete', []];
        }
        if (json_encode($result) === false) {
            return ['fail', ['error' => 'the result of the handler is not JSON: ' . json_last_error_msg(), 'retry' => false]];
        }
        return ['complete', ['result' => $result]];
    }

    /** @param array<string, mixed> $leased */
    private function call(array $leased): mixed
    {
        $payload = match (true) {
            isset($leased['payload_text']) => $leased['payload_text'],
            isset($leased['payload_base64']) => (string) base64_decode($leased['payload_base64'], true),
            default => json_encode($leased['payload'] ?? null, JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES),
        };
        $context = new Context(
            $leased['id'],
            $leased['type'],
            $leased['queue'],
            $leased['attempt'],
            $leased['max_retry'],
            new \DateTimeImmutable($leased['deadline']),
            $leased['headers'],
            $payload,
        );
        $handler = $this->handlers[$leased['type']]
            ?? throw new Archive("no handler for tasks of the type {$leased['type']}");
        foreach (array_reverse($this->middlewares) as $middleware) {
            $handler = static fn (array $params, Context $context): mixed => $middleware($params, $context, $handler);
        }
        $params = $leased['payload'] ?? [];
        return $handler(is_array($params) ? $params : [$params], $context);
    }

    private static function cut(string $text): string
    {
        // The text must be UTF-8, also after the cut.
        return json_decode((string) json_encode(substr($text, 0, 2_000), JSON_INVALID_UTF8_SUBSTITUTE)) ?: 'failed';
    }
}

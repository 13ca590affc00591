<?php

declare(strict_types=1);

namespace Pyasynq;

/**
 * The process between the worker and its children: starts them, tells how they ended, and kills them all when
 * the worker is gone. It has never opened a connection, so its children inherit none.
 */
final class Guard
{
    /** A child that ends just before a wait does not end the wait. */
    private const LOOK_MICROSECONDS = 500_000;

    /** @var array<int, int> slot by process */
    private array $slots = [];
    private bool $isAsynchronous = false;

    /**
     * @param array<int, Pipe> $pipes the children's ends, by slot
     * @param \Closure(Pipe): void $work the life of a child
     */
    public function __construct(
        private readonly Pipe $parent,
        private readonly array $pipes,
        private readonly WakeUp $wakeUp,
        private readonly \Closure $work,
    ) {
    }

    public function run(): never
    {
        posix_setsid();
        foreach ([SIGTERM, SIGINT, SIGHUP] as $signal) {
            pcntl_signal($signal, SIG_IGN);
        }
        $this->isAsynchronous = pcntl_async_signals(true);
        // It ends the wait when a child ends.
        pcntl_signal(SIGCHLD, static fn () => null, false);
        $wakeUp = $this->wakeUp->accept();
        foreach ([$this->parent, ...$this->pipes] as $pipe) {
            $pipe->wakeUp = $wakeUp;
        }
        foreach (array_keys($this->pipes) as $slot) {
            $this->start($slot);
        }
        while (true) {
            $read = [$this->parent->stream];
            $none = null;
            @stream_select($read, $none, $none, 0, self::LOOK_MICROSECONDS);
            if ($this->parent->poll() === null) {
                $this->end();
            }
            while (($process = pcntl_waitpid(-1, $status, WNOHANG)) > 0) {
                // What the child has left in its group goes with it.
                @posix_kill(-$process, SIGKILL);
                $slot = $this->slots[$process];
                unset($this->slots[$process]);
                $this->pipes[$slot]->drain();
                $signal = pcntl_wifsignaled($status) ? pcntl_wtermsig($status) : 0;
                $this->parent->send(['died', $slot, $signal, $signal ? 0 : pcntl_wexitstatus($status)]);
                $this->start($slot);
            }
        }
    }

    private function start(int $slot): void
    {
        $process = pcntl_fork();
        if ($process === -1) {
            $this->end();
        }
        if ($process === 0) {
            posix_setsid();
            pcntl_signal(SIGCHLD, SIG_DFL);
            pcntl_async_signals($this->isAsynchronous);
            // The worker must see the end of this guard, also while a child lives.
            fclose($this->parent->stream);
            foreach ($this->pipes as $other => $pipe) {
                if ($other !== $slot) {
                    fclose($pipe->stream);
                }
            }
            ($this->work)($this->pipes[$slot]);
            exit(0);
        }
        $this->slots[$process] = $slot;
        $this->parent->send(['born', $slot, $process, 0]);
    }

    private function end(): never
    {
        foreach (array_keys($this->slots) as $process) {
            // The child may not have made its group yet.
            @posix_kill(-$process, SIGKILL);
            @posix_kill($process, SIGKILL);
        }
        exit(0);
    }
}

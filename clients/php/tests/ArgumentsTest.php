<?php

declare(strict_types=1);

namespace Pyasynq\Tests;

use PHPUnit\Framework\TestCase;
use Pyasynq\{Client, Worker};

final class ArgumentsTest extends TestCase
{
    /** @dataProvider badArguments */
    public function testTheErrorNamesTheArgument(string $beginning, \Closure $make): void
    {
        $this->expectException(\InvalidArgumentException::class);
        $this->expectExceptionMessageMatches("~^$beginning: ~");
        $make();
    }

    /** @return iterable<string, array{string, \Closure}> */
    public function badArguments(): iterable
    {
        yield 'no scheme' => ['service', static fn () => new Client('task-queue:8080')];
        yield 'a password' => ['service', static fn () => new Client('http://me:secret@task-queue:8080')];
        yield 'two lines' => ['key', static fn () => new Client('http://task-queue:8080', "pq_1\npq_2")];
        yield 'no child' => ['concurrency', static fn () => new Worker('http://task-queue:8080', concurrency: 0)];
        yield 'too many' => ['concurrency', static fn () => new Worker('http://task-queue:8080', concurrency: 101)];
    }

    public function testAWorkerWithoutHandlers(): void
    {
        $this->expectException(\LogicException::class);
        $this->expectExceptionMessage('call on() first');
        (new Worker('http://task-queue:8080'))->run();
    }
}

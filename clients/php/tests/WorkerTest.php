<?php

declare(strict_types=1);

namespace Pyasynq\Tests;

use PHPUnit\Framework\TestCase;
use Pyasynq\{Address, Client, ServiceException};

/** A worker and a client of the service that PYASYNQ_SERVICE names; it has the type `resize`. */
final class WorkerTest extends TestCase
{
    private const SECONDS = 30.0;

    /** @var resource */
    private static $worker;

    public static function setUpBeforeClass(): void
    {
        if (getenv('PYASYNQ_SERVICE') === false) {
            self::markTestSkipped('PYASYNQ_SERVICE names no service');
        }
        $worker = proc_open([PHP_BINARY, __DIR__ . '/handlers.php'], [], $pipes);
        self::assertIsResource($worker);
        self::$worker = $worker;
    }

    public static function tearDownAfterClass(): void
    {
        proc_terminate(self::$worker, SIGTERM);
        self::assertSame(0, proc_close(self::$worker));
    }

    /**
     * @dataProvider results
     * @param array<string, mixed> $params
     */
    public function testTheReturnValueIsTheResult(array $params, mixed $result): void
    {
        self::assertSame(['completed', $result], $this->runTask($params));
    }

    /** @return iterable<string, array{array<string, mixed>, mixed}> */
    public function results(): iterable
    {
        $paths = ['path' => 'outer inner /tmp/7'];
        yield 'none' => [['do' => 'return', 'value' => null], null];
        yield 'text' => [['do' => 'return', 'value' => '配送 "任务"/'], '配送 "任务"/'];
        yield 'whole float' => [['do' => 'return', 'value' => 2.0], 2.0];
        yield 'list' => [['do' => 'return', 'value' => [1, [true, null]]], [1, [true, null]]];
        yield 'the first middleware is outermost' => [['do' => 'return', 'value' => ['path' => '/tmp/7']], $paths];
    }

    /** @dataProvider outcomes */
    public function testExceptionsAreOutcomes(string $do, string $state, string $text): void
    {
        $task = (new Client())->enqueue('resize', ['do' => $do]);
        $until = microtime(true) + self::SECONDS;
        do {
            self::assertLessThan($until, microtime(true), "the task is still not $state");
            usleep(20_000);
            $found = $this->fetch($task['id']);
        } while ($found['state'] !== $state);
        self::assertStringContainsString($text, $found['last_error'] ?? '');
        // Nothing has failed if it only runs later.
        self::assertSame($do === 'snooze' ? 0 : 1, $found['retried'] + (int) ($state === 'archived'));
    }

    /** @return iterable<string, array{string, string, string}> */
    public function outcomes(): iterable
    {
        yield 'Snooze' => ['snooze', 'retry', ''];
        yield 'Retry' => ['retry', 'retry', 'busy'];
        yield 'Archive' => ['archive', 'archived', 'never'];
        yield 'bytes that are not UTF-8' => ['throw', 'retry', "DomainException: \u{fffd}配送失败 [handlers.php:"];
        yield 'a result that is not JSON' => ['resource', 'archived', 'the result of the handler is not JSON'];
    }

    public function testTheContextDescribesTheTask(): void
    {
        $options = ['task_id' => 'p-7', 'headers' => ['colour' => 'red'], 'retention' => 3600];
        [, $result] = $this->runTask(['do' => 'describe'], $options);
        $payload = '{"do":"describe"}';
        self::assertEquals(
            ['id' => 'p-7', 'queue' => 'resize', 'attempt' => 1, 'header' => 'red', 'payload' => $payload],
            $result,
        );
    }

    /** While one child works and the other one is free. */
    public function testAWorkerWaitsForTheServiceAndItsChildrenTogether(): void
    {
        if (!is_readable('/proc/self/status')) {
            self::markTestSkipped('only Linux counts how often a process waits');
        }
        $client = new Client();
        $sleeping = $client->enqueue('resize', ['do' => 'sleep', 'seconds' => 3], ['retention' => 3600]);
        while ($this->fetch($sleeping['id'])['state'] !== 'active') {
            usleep(20_000);
        }
        $before = $this->countWaits();
        usleep(1_500_000);
        self::assertLessThan(30, $this->countWaits() - $before);
        self::assertSame('active', $this->fetch($sleeping['id'])['state']);
        // More than a pipe takes at once; it must not arrive in parts, one at each look.
        $text = str_repeat('x', 900_000);
        $began = microtime(true);
        self::assertSame(['completed', $text], $this->runTask(['do' => 'return', 'value' => $text]));
        self::assertLessThan(1.0, microtime(true) - $began);
        self::assertSame('completed', $client->wait('resize', $sleeping['id'], self::SECONDS)['state']);
    }

    private function countWaits(): int
    {
        $status = (string) file_get_contents('/proc/' . proc_get_status(self::$worker)['pid'] . '/status');
        self::assertSame(1, preg_match('/^voluntary_ctxt_switches:\s+(\d+)$/m', $status, $found));
        return (int) $found[1];
    }

    public function testTheClientWaitsNoLongerThanItIsTold(): void
    {
        $task = (new Client())->enqueue('resize', ['do' => 'return', 'value' => 1], ['process_in' => 3600]);
        self::assertNull((new Client())->wait('resize', $task['id'], 0.2));
    }

    public function testAProblemIsAnException(): void
    {
        try {
            (new Client())->enqueue('rezise');
            self::fail('an unknown type was enqueued');
        } catch (ServiceException $error) {
            self::assertSame(422, $error->getCode());
            self::assertStringContainsString('resize', $error->getMessage());
        }
    }

    public function testEachTaskOfABatchHasItsAnswer(): void
    {
        $answers = (new Client())->enqueueMany([
            ['resize', ['do' => 'return', 'value' => 1], ['process_in' => 3600]],
            ['rezise'],
            ['resize', ['do' => 'return', 'value' => 2], ['process_in' => 3600]],
        ]);
        self::assertSame([201, 422, 201], array_column($answers, 'status'));
    }

    /**
     * @param array<string, mixed> $params
     * @param array<string, mixed> $options
     * @return array{string, mixed} state and result of a task that has ended
     */
    private function runTask(array $params, array $options = []): array
    {
        $client = new Client();
        $task = $client->enqueue('resize', $params, $options);
        $end = $client->wait('resize', $task['id'], self::SECONDS);
        self::assertNotNull($end, 'the task has not ended');
        return [$end['state'], $end['result']];
    }

    /** @return array<string, mixed> */
    private function fetch(string $id): array
    {
        $handle = (new Address(null, null))->prepare('GET', "/v1/tasks/resize/$id", null, self::SECONDS);
        return Address::readAnswer($handle, (string) curl_exec($handle))[1];
    }
}

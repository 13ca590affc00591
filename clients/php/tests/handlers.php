<?php

declare(strict_types=1);

// The worker of WorkerTest.

use Pyasynq\{Archive, Context, Retry, Snooze, Worker};

require __DIR__ . '/bootstrap.php';

$worker = new Worker(concurrency: 2, maxTime: 60.0);
foreach (['outer', 'inner'] as $name) {
    $worker->use(static function (array $params, Context $context, callable $next) use ($name): mixed {
        $result = $next($params, $context);
        return is_array($result) && isset($result['path']) ? ['path' => "$name {$result['path']}"] : $result;
    });
}
$worker->on('resize', static fn (array $params, Context $context): mixed => match ($params['do']) {
    'return' => $params['value'],
    'resource' => STDIN,
    'sleep' => sleep($params['seconds']),
    'describe' => [
        'id' => $context->id,
        'queue' => $context->queue,
        'attempt' => $context->attempt,
        'header' => $context->headers['colour'],
        'payload' => $context->payload,
    ],
    'snooze' => throw new Snooze(3600),
    'retry' => throw new Retry(3600, 'busy'),
    'archive' => throw new Archive('never'),
    'throw' => throw new DomainException("\xff配送失败"),
});
exit($worker->run());

<?php

declare(strict_types=1);

use Pyasynq\Archive;
use Pyasynq\Context;
use Pyasynq\Retry;
use Pyasynq\Snooze;
use Pyasynq\Worker;

spl_autoload_register(static function (string $name): void {
    require dirname(__DIR__, 2) . '/clients/php/src/' . basename(str_replace('\\', '/', $name)) . '.php';
});

function burn(): never
{
    while (true) {
    }
}

$worker = new Worker(concurrency: 2, lease: (float) (getenv('LEASE_SECONDS') ?: 1.0), maxTasks: (int) (getenv('MAX_TASKS') ?: 100));
$worker->use(static function (array $params, Context $context, callable $next): mixed {
    $result = $next($params, $context);
    return is_array($result) ? $result + ['attempt' => $context->attempt] : $result;
});
$worker->on('resize', static function (array $params, Context $context): mixed {
    if (isset($params['pidfile'])) {
        file_put_contents($params['pidfile'], getmypid() . "\n", FILE_APPEND);
    }
    return match ($params['do']) {
        'echo' => ['text' => $params['text']],
        'sleep' => sleep($params['seconds']),
        'exit' => exit(7),
        'hog' => str_repeat('a', 1 << 30),
        'burn' => set_time_limit(1) && burn(),
        'crash' => posix_kill(getmypid(), SIGSEGV),
        'throw' => throw new LogicException('配送失败'),
        'snooze' => throw new Snooze(3600),
        'retry' => throw new Retry(3600, 'busy'),
        'archive' => throw new Archive('never'),
    };
});
exit($worker->run());

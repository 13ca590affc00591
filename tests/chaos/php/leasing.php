<?php

declare(strict_types=1);

use Pyasynq\Context;
use Pyasynq\Worker;

// A worker of the Composer package: php leasing.php FOLDER LEASE CHILDREN
require __DIR__ . '/notes.php';
spl_autoload_register(static function (string $name): void {
    require dirname(__DIR__, 3) . '/clients/php/src/' . basename(str_replace('\\', '/', $name)) . '.php';
});

[, $folder, $lease, $children] = $argv;
$notes = new Notes($folder);
$worker = new Worker(concurrency: (int) $children, lease: (float) $lease);
$worker->on('race', static fn (array $params, Context $context) => $notes->run($params, (string) $context->attempt));
exit($worker->run());

<?php

declare(strict_types=1);

// A worker as it was written for gearmand, which ends when its server has gone: php gearman.php PORT FOLDER
require __DIR__ . '/notes.php';

[, $port, $folder] = $argv;
$notes = new Notes($folder);
$worker = new GearmanWorker();
$worker->addServer('127.0.0.1', (int) $port);
$worker->addFunction('race', static function (GearmanJob $job) use ($notes): string {
    $notes->run(json_decode($job->workload(), true), $job->handle());
    return '';
});
while ($worker->work());

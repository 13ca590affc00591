<?php
// A worker as it was written for gearmand: only host and port are given.
[, $port, $events] = $argv;

function note(string $events, string $what): void
{
    file_put_contents($events, getmypid() . " $what\n", FILE_APPEND | LOCK_EX);
}

$worker = new GearmanWorker();
$worker->addServer('127.0.0.1', (int) $port);
$worker->addFunction('reverse', function (GearmanJob $job) {
    $job->sendStatus(1, 2);
    $job->sendData('half');
    return strrev($job->workload());
});
$worker->addFunction('resize', function (GearmanJob $job) use ($events) {
    note($events, $job->functionName() . ' ' . $job->unique() . ' ' . $job->workload());
    if ($job->workload() === 'fail') {
        $job->sendException('no paper');
        $job->sendFail();
    }
    if ($job->workload() === 'hang') {
        sleep(600);
    }
    return '';
});
note($events, 'begins');
while ($worker->work());

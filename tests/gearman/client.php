<?php
// A client as it was written for gearmand: only host and port are given.
[, $port] = $argv;

$client = new GearmanClient();
$client->addServer('127.0.0.1', (int) $port);
$seen = ['ping' => $client->ping('x')];
$seen['normal'] = bin2hex($client->doNormal('reverse', "h\0ello"));
$seen['high'] = $client->doHigh('reverse', 'high');
$seen['low'] = $client->doLow('reverse', 'low');

$handle = $client->doBackground('resize', '1', 'unique-1');
$seen['handle'] = strlen($handle) <= 63;

// No worker has this function, so the job waits for as long as it is looked at.
$seen['status'] = $client->jobStatus($client->doBackground('later', '1'));

@$client->doNormal('resize', 'fail');
$seen['exception'] = $client->returnCode() === GEARMAN_WORK_EXCEPTION;

$ends = [];
$client->setCompleteCallback(function (GearmanTask $task) use (&$ends) {
    $ends[$task->unique()] = $task->data();
});
$data = [];
$client->setDataCallback(function (GearmanTask $task) use (&$data) {
    $data[] = $task->data();
});
for ($number = 0; $number < 20; $number++) {
    $client->addTask('reverse', "task$number", null, "t$number");
}
$client->runTasks();
ksort($ends);
$seen['tasks'] = $ends;
$seen['data'] = array_count_values($data);
echo json_encode($seen), "\n";

<?php

declare(strict_types=1);

spl_autoload_register(static function (string $name): void {
    require dirname(__DIR__, 2) . '/clients/php/src/' . basename(str_replace('\\', '/', $name)) . '.php';
});

$client = new Pyasynq\Client();
$one = $client->enqueue('resize', ['do' => 'echo', 'text' => '配送']);
$more = $client->enqueueMany([['resize', ['do' => 'echo', 'text' => 'b']], ['rezise']]);
try {
    $client->enqueue('rezise');
} catch (Pyasynq\ServiceException $error) {
    echo json_encode([
        $client->wait('resize', $one['id'])['result']['text'],
        $client->wait('resize', $more[0]['task']['id'])['result']['text'],
        $more[1]['status'],
        $error->getCode(),
    ]);
}

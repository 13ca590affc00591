<?php

declare(strict_types=1);

/** Writes down the runs of this process in the form of tests/chaos/records.py, one `write` for a record. */
final class Notes
{
    /** @var resource|null */
    private $file = null;

    public function __construct(private readonly string $folder)
    {
    }

    /** @param array{name: string, milliseconds: int} $params */
    public function run(array $params, string $attempt): void
    {
        $this->note('started', "{$params['name']} $attempt");
        usleep(1_000 * $params['milliseconds']);
        $this->note('finished', $params['name']);
    }

    private function note(string $what, string $of): void
    {
        $this->file ??= fopen(sprintf('%s/%d-%d.records', $this->folder, getmypid(), hrtime(true)), 'a');
        fwrite($this->file, sprintf("%s %.4f %s\n", $what, hrtime(true) / 1e9, $of));
    }
}

<?php

declare(strict_types=1);

namespace Pyasynq\Tests;

use PHPUnit\Framework\TestCase;
use Pyasynq\Pipe;

final class PipeTest extends TestCase
{
    private Pipe $ours;
    private Pipe $theirs;

    protected function setUp(): void
    {
        [$this->ours, $this->theirs] = Pipe::pair();
    }

    public function testMessagesArriveInOrder(): void
    {
        $this->ours->send([1, '配送', null]);
        $this->ours->send([2, ['a' => 1.5], true]);
        self::assertSame([[1, '配送', null], [2, ['a' => 1.5], true]], $this->theirs->poll());
        self::assertSame([], $this->theirs->poll());
    }

    public function testAPartOfAMessageIsNone(): void
    {
        $data = serialize(['whole']);
        $this->ours->write(pack('N', strlen($data)) . substr($data, 0, 5));
        self::assertSame([], $this->theirs->poll());
        $this->ours->write(substr($data, 5));
        self::assertSame([['whole']], $this->theirs->poll());
    }

    public function testForgottenBytesDoNotReachTheNextMessage(): void
    {
        $this->ours->write('the first half of a message');
        $this->theirs->drain();
        $this->ours->send(['next']);
        self::assertSame(['next'], $this->theirs->receive());
    }

    public function testAMarkIsFoundAfterOtherBytes(): void
    {
        $this->ours->send(['lost']);
        $this->ours->write(str_repeat('a', 70_000) . 'mark');
        $this->ours->send(['next']);
        self::assertTrue($this->theirs->skipTo('mark'));
        self::assertSame(['next'], $this->theirs->receive());
    }

    public function testTheEndOfTheOtherSide(): void
    {
        $this->ours->send(['last']);
        fclose($this->ours->stream);
        self::assertSame([['last']], $this->theirs->poll());
        self::assertNull($this->theirs->poll());
        self::assertNull($this->theirs->receive());
        self::assertFalse($this->theirs->skipTo('mark'));
        self::assertFalse($this->theirs->send(['unread']));
    }

    public function testEachPartOfAMessageWakesTheOtherSide(): void
    {
        [$waiting, $waking] = Pipe::pair();
        $this->ours->wakeUp = $waking->stream;
        $this->ours->send(['short']);
        $this->ours->send([str_repeat('x', 100_000)]);
        stream_set_blocking($waiting->stream, false);
        self::assertSame('...', fread($waiting->stream, 100));
    }

    public function testObjectsAreNotMade(): void
    {
        $this->ours->send([new \ArrayObject()]);
        self::assertInstanceOf(\__PHP_Incomplete_Class::class, $this->theirs->receive()[0]);
    }
}

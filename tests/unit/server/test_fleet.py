"""What a supervisor decides, in virtual time."""

from __future__ import annotations

import pytest

from pyasynq._engine.supervisor.fleet import (
    Fate,
    Fleet,
    Kill,
    Limits,
    Member,
    MemberPhase,
    Stage,
    Start,
    Terminate,
)

KILLED = -9


class Play:
    """A fleet, the time, and what the fleet wanted so far."""

    def __init__(self, processes: int = 1, *, burst: bool = False, limits: Limits | None = None) -> None:
        self.fleet = Fleet(processes, burst=burst, limits=limits or Limits())
        self.now = 1_000.0
        self.started: list[Member] = []
        self.terminated: list[Member] = []
        self.killed: list[tuple[Member, str]] = []

    def act(self) -> list[Member]:
        """Do what is to be done; return what was started."""
        started = []
        for action in self.fleet.actions(self.now):
            if isinstance(action, Start):
                started.append(action.member)
            elif isinstance(action, Kill):
                self.killed.append((action.member, action.reason))
            else:
                assert isinstance(action, Terminate)
                self.terminated.append(action.member)
        self.started += started
        return started

    def begin(self) -> list[Member]:
        """Start all children and let them be ready."""
        members = self.act()
        for member in members:
            self.fleet.ready(member)
        return members

    def die(self, member: Member, code: int = KILLED) -> Fate:
        """Let a child end."""
        return self.fleet.died(member, code, self.now)

    def wait(self) -> float:
        """Let the time pass until the next start, and return how long that was."""
        pause = self.fleet.wake_at() - self.now
        self.now += pause
        return pause


def test_all_places_are_filled_at_the_start_and_once() -> None:
    """Numbered from 1."""
    play = Play(3)
    assert [1, 2, 3] == [member.worker for member in play.act()]
    assert [] == play.act()
    assert float("inf") == play.fleet.wake_at()
    assert not play.fleet.is_over


def test_pauses_between_starts_double_from_one_second_to_sixty() -> None:
    """As long as no child lives for a minute; the other place's child keeps the supervisor from giving up."""
    play = Play(2)
    dying, _ = play.begin()
    pauses = []
    for _ in range(8):
        assert Fate.RESTARTED is play.die(dying)
        assert [] == play.act()
        pauses.append(play.wait())
        [dying] = play.begin()
    assert [1, 2, 4, 8, 16, 32, 60, 60] == pauses


def test_a_child_that_lived_for_a_minute_resets_the_pauses() -> None:
    """One second less does not."""
    play = Play(2)
    dying, _ = play.begin()
    play.die(dying)
    play.wait()
    [dying] = play.begin()
    play.now += 59
    play.die(dying)
    assert 2 == play.wait()
    [dying] = play.begin()
    play.now += 60
    play.die(dying)
    assert 1 == play.wait()


def test_five_deaths_within_a_minute_that_no_child_lived_through_are_the_end() -> None:
    """The fifth one ends the supervisor with code 5, and the other child."""
    play = Play(2)
    first, second = play.begin()
    for _ in range(2):
        assert [Fate.RESTARTED, Fate.RESTARTED] == [play.die(first), play.die(second)]
        play.wait()
        first, second = play.begin()
    assert Fate.HOPELESS is play.die(first)
    assert [] == play.act()
    assert [second] == play.terminated
    assert [second] == play.fleet.members
    play.die(second, 0)
    assert play.fleet.is_over
    assert 5 == play.fleet.exit_code


def test_deaths_that_lie_further_apart_are_not_the_end() -> None:
    """Five in more than a minute."""
    play = Play()
    for _ in range(6):
        [member] = play.begin()
        play.now += 14
        assert Fate.RESTARTED is play.die(member)
        play.wait()


def test_wrong_usage_is_the_end_at_once() -> None:
    """The arguments stay what they are."""
    play = Play(2)
    first, second = play.act()
    assert Fate.HOPELESS is play.die(first, 2)
    play.act()
    assert [second] == play.terminated
    play.die(second, 2)
    assert 2 == play.fleet.exit_code


def test_a_reload_replaces_one_child_at_a_time_and_ends_it_when_the_new_one_is_ready() -> None:
    """The next one waits for the end of the last."""
    play = Play(2)
    first, second = play.begin()
    play.fleet.reload(play.now)
    [new] = play.act()
    assert (1, []) == (new.worker, play.terminated)
    assert [] == play.act()
    play.fleet.ready(new)
    assert [] == play.act()
    assert [first] == play.terminated
    assert Fate.EXPECTED is play.die(first, 3)
    [newer] = play.act()
    play.fleet.ready(newer)
    play.act()
    assert [first, second] == play.terminated
    play.die(second, 0)
    assert [] == play.act()
    assert [new, newer] == play.fleet.members
    assert 0 == play.fleet.exit_code


def test_a_reload_is_called_off_when_the_new_child_does_not_come_up() -> None:
    """The old ones go on; another reload tries again."""
    play = Play(2)
    old = play.begin()
    play.fleet.reload(play.now)
    [new] = play.act()
    assert Fate.RELOAD_FAILED is play.die(new, 1)
    assert [] == play.act()
    assert old == play.fleet.members
    assert [] == play.terminated
    play.fleet.reload(play.now)
    assert 1 == len(play.act())


def test_a_reload_fills_places_that_wait() -> None:
    """New code may be what helps."""
    play = Play(2)
    dying, _ = play.begin()
    play.die(dying)
    play.fleet.reload(play.now)
    assert [1, 2] == [member.worker for member in play.act()]


def test_a_place_is_filled_when_its_child_dies_while_its_follower_starts() -> None:
    """The follower takes it over."""
    play = Play()
    [old] = play.begin()
    play.fleet.reload(play.now)
    [new] = play.act()
    play.die(old)
    play.wait()
    [extra] = play.act()
    play.fleet.ready(extra)
    play.fleet.ready(new)
    play.act()
    assert [extra] == play.terminated
    play.die(extra, 0)
    assert [new] == play.fleet.members


def test_a_child_that_leaves_is_followed_at_once_and_may_take_its_time() -> None:
    """Its end is not a death. A second one may leave meanwhile, a third waits for the first."""
    play = Play()
    leaving = play.begin()
    for _ in range(2):
        play.fleet.leaving(leaving[-1], play.now)
        leaving += play.begin()
    assert 2 == len(leaving)
    assert [] == play.act()
    assert Fate.EXPECTED is play.die(leaving[0], KILLED)
    assert 1 == len(play.begin())
    assert [] == play.terminated


def test_a_follower_that_leaves_before_it_said_that_it_is_ready_has_still_followed() -> None:
    """The old one is told to end, and the place gets another one."""
    play = Play()
    [old] = play.begin()
    play.fleet.reload(play.now)
    [new] = play.act()
    play.fleet.leaving(new, play.now)
    assert MemberPhase.LEAVING is new.phase
    play.act()
    assert [old] == play.terminated
    play.die(old, 0)
    assert 1 == len(play.act())


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0], 0), ([0, 3], 3), ([4, 3], 4), ([-9, 0], 3), ([1, 0], 3)],
)
def test_the_exit_code_is_the_worst_of_the_children_when_all_are_to_end(
    codes: list[int], expected: int
) -> None:
    """A killed one has left unfinished tasks."""
    play = Play(2)
    members = play.begin()
    play.fleet.close()
    play.act()
    assert members == play.terminated
    for member, code in zip(members, codes, strict=True):
        assert Fate.EXPECTED is play.die(member, code)
        assert [] == play.act()
    assert play.fleet.is_over
    assert expected == play.fleet.exit_code


def test_a_child_that_is_ended_before_it_was_ready_has_left_nothing() -> None:
    """TERM ends it while it imports."""
    play = Play()
    [member] = play.act()
    play.fleet.close()
    play.die(member, -15)
    assert 0 == play.fleet.exit_code


def test_after_a_stop_nothing_is_started() -> None:
    """Children that take tasks are told; those that start are ended."""
    play = Play(2)
    first, second = play.act()
    play.fleet.ready(first)
    assert [first] == play.fleet.stop()
    play.act()
    assert [second] == play.terminated
    play.die(first)
    play.fleet.reload(play.now)
    assert [] == play.act()
    assert play.now + second.patience == play.fleet.wake_at()
    play.die(second)
    assert play.fleet.is_over
    assert Stage.STOPPED is play.fleet.stage


def test_in_burst_mode_a_child_that_ends_has_done_its_work() -> None:
    """One that dies is started again."""
    play = Play(2, burst=True)
    first, second = play.begin()
    assert Fate.FINISHED is play.die(first, 0)
    assert Fate.RESTARTED is play.die(second)
    play.wait()
    [again] = play.begin()
    assert Fate.FINISHED is play.die(again, 3)
    assert play.fleet.is_over
    assert 3 == play.fleet.exit_code


def test_a_dead_child_is_not_terminated() -> None:
    """Its process number may be somebody else's by then."""
    play = Play()
    [member] = play.begin()
    play.fleet.close()
    play.die(member, 0)
    assert [] == play.act()
    assert [] == play.terminated
    assert MemberPhase.READY is member.phase


def test_a_child_that_gives_no_sign_of_life_is_killed_once_and_replaced() -> None:
    """After the limit, and not before; the other child goes on. (D17)"""
    play = Play(2, limits=Limits(silence=30))
    silent, other = play.begin()
    play.fleet.heard(play.now, [silent, other])
    play.now += 29
    play.fleet.heard(play.now, [other])
    assert 1 == play.wait()
    play.act()
    play.act()
    assert [(silent, "gave no sign of life for 30 s")] == play.killed
    assert Fate.RESTARTED is play.die(silent)
    play.wait()
    assert [silent.worker] == [member.worker for member in play.act()]


def test_a_child_that_has_not_given_a_sign_of_life_yet_is_given_time() -> None:
    """It may be loading a library that keeps the lock. (D17)"""
    play = Play(limits=Limits(silence=30))
    play.begin()
    assert float("inf") == play.fleet.wake_at()


def test_the_silence_of_a_stopped_supervisor_is_not_held_against_its_children() -> None:
    """All children get the whole time again. (D17)"""
    play = Play(limits=Limits(silence=30))
    play.fleet.heard(play.now, play.begin())
    play.now += 3_600
    play.fleet.resumed(play.now)
    play.act()
    assert [] == play.killed
    assert 30 == play.wait()


def test_a_child_that_does_not_end_after_term_is_killed() -> None:
    """Its own timeouts and a margin later. (D17)"""
    play = Play()
    [member] = play.begin()
    member.patience = 3
    play.fleet.close()
    play.act()
    assert ([member], []) == (play.terminated, play.killed)
    assert 3 == play.wait()
    play.act()
    assert [(member, "did not end within 3 s of TERM")] == play.killed
    play.die(member)
    assert play.fleet.is_over


def test_a_reload_whose_new_child_hangs_is_called_off() -> None:
    """The new one is told to end, and killed if it does not; the old ones go on. (D17)"""
    play = Play(2, limits=Limits(start=60))
    old = play.begin()
    play.fleet.reload(play.now)
    [new] = play.act()
    assert 60 == play.wait()
    play.act()
    assert [new] == play.terminated
    play.fleet.ready(new)
    play.wait()
    play.act()
    assert [new] == [member for member, _ in play.killed]
    assert Fate.RELOAD_FAILED is play.die(new)
    assert [] == play.act()
    assert old == play.fleet.members

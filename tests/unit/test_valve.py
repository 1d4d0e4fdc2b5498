"""What is printed again after going back to an image is not passed on again."""

from __future__ import annotations

import fcntl
import os
import random
import struct
import termios
import threading
import time

import pytest

from pyft.agent.supervisor import valve as valve_module
from pyft.agent.supervisor.valve import Pump, Valve


def test_nothing_is_kept_back() -> None:
    valve = Valve()
    assert valve.take(b"one\ntw") == b"one\ntw"
    assert valve.take(b"o\n\r 5 %") == b"o\n\r 5 %"
    assert valve.end() == b""


def test_lines_since_the_image_come_once() -> None:
    valve = Valve()
    out = valve.take(b"before\n")
    valve.mark(1)
    out += valve.take(b"1\n2\n")
    out += valve.back(1)
    for line in (b"1\n", b"2\n", b"3\n"):
        out += valve.take(line)
    assert out == b"before\n1\n2\n3\n"
    assert not valve.otherwise


def test_ranks_may_print_in_another_order() -> None:
    valve = Valve()
    valve.mark(1)
    valve.take(b"a1\nb1\na2\nb2\n")
    valve.back(1)
    assert valve.take(b"b1\nb2\na1\na2\nb3\n") == b"b3\n"


def test_a_rank_may_be_far_ahead_of_another() -> None:
    """It prints more new lines than the other one has to print again."""
    valve = Valve()
    valve.mark(1)
    valve.take(b"a1\na2\nb1\n")
    valve.back(1)
    new = b"".join(b"b%d\n" % step for step in range(2, 2 + valve_module.LEAST_AHEAD))
    assert valve.take(b"b1\n" + new + b"a1\na2\na3\n") == new + b"a3\n"
    assert valve.otherwise == 0


def test_a_line_that_comes_out_otherwise_is_passed_on_and_counted() -> None:
    valve = Valve()
    valve.mark(1)
    valve.take(b"step 1 0.31 s\nstep 2 0.30 s\n")
    valve.back(1)
    assert valve.take(b"step 1 0.32 s\nstep 2 0.30 s\n") == b"step 1 0.32 s\n"
    assert valve.otherwise == 0, "it may still come"
    new = b"".join(b"%d\n" % n for n in range(valve_module.LEAST_AHEAD))
    assert valve.take(new) == new
    assert valve.otherwise == 1
    assert valve.take(b"step 1 0.31 s\n") == b"step 1 0.31 s\n"  # it is over: nothing is swallowed


def test_what_never_came_again_is_counted_at_the_end() -> None:
    valve = Valve()
    valve.mark(1)
    valve.take(b"1\n2\n3")
    valve.back(1)
    assert valve.take(b"1\n34") + valve.end() == b"4"
    assert valve.otherwise == 1


def test_a_line_that_was_cut_off_is_completed() -> None:
    valve = Valve()
    valve.mark(1)
    assert valve.take(b"1\n2 of a li") == b"1\n2 of a li"
    valve.back(1)
    assert valve.take(b"1\n2 of a line\n3\n") == b"ne\n3\n"


def test_an_image_in_the_middle_of_a_line() -> None:
    valve = Valve()
    out = valve.take(b"epoch 1: ")
    valve.mark(1)
    out += valve.take(b"done\nepoch 2\n")
    out += valve.back(1)
    out += valve.take(b"done\nepoch 2\nepoch 3\n")
    assert out == b"epoch 1: done\nepoch 2\nepoch 3\n"


def test_a_second_fault_before_the_place_of_the_first() -> None:
    valve = Valve()
    valve.mark(1)
    out = valve.take(b"1\n2\n3\n")
    out += valve.back(1)
    out += valve.take(b"1\n")
    valve.mark(2)  # an image while lines still come again
    out += valve.take(b"2\n")
    out += valve.back(2)
    out += valve.take(b"2\n3\n4\n")
    assert out == b"1\n2\n3\n4\n"


def test_a_second_fault_in_the_middle_of_a_line_that_comes_again() -> None:
    """What of it was passed on before the first one is not glued to the next line."""
    for first, torn, second in (
        (b"1\n2\n", b"1\n", b"2"),
        (b"1\n2\n", b"", b"1"),
        (b"12", b"", b"1"),
    ):
        valve = Valve()
        valve.mark(1)
        out = valve.take(first)
        out += valve.back(1)
        out += valve.take(torn + second)
        out += valve.back(1)
        rest = b"1\n2\n3\n" if first != b"12" else b"123\n"
        out += valve.take(rest) + valve.end()
        assert (out, valve.otherwise) == (rest, 0)


def test_a_line_is_torn_twice() -> None:
    valve = Valve()
    valve.mark(1)
    out = valve.take(b"0\nab")
    out += valve.back(1)
    out += valve.take(b"0\nabcd")
    out += valve.back(1)
    out += valve.take(b"0\n")
    out += valve.back(1)  # before it comes at all
    out += valve.take(b"0\nabcdef\n1\n") + valve.end()
    assert out == b"0\nabcdef\n1\n"


def test_an_image_that_is_not_known_swallows_nothing() -> None:
    """That of a place which comes from another host."""
    valve = Valve()
    valve.take(b"1\n")
    valve.back(7)
    assert valve.take(b"1\n") == b"1\n"


def test_what_no_image_needs_is_not_kept() -> None:
    valve = Valve()
    for number in range(1, 50):
        valve.mark(number)
        valve.take(b"a line\n" * 10)
        valve.forget(number - 1)
        assert len(valve._lines) == 10
    valve.forget(49)
    assert not valve._lines


def test_very_much_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valve_module, "MOST_LINES", 100)
    valve = Valve()
    valve.mark(1)
    valve.take(b"".join(b"%d\n" % n for n in range(1000)))
    assert len(valve._lines) <= 100
    assert valve.take(b"x" * (1 << 20)) == b"x" * (1 << 20)


def test_any_cut_of_any_output_comes_once() -> None:
    """Two ranks print lines; images and faults at any byte."""
    dice = random.Random(5)
    for _ in range(300):
        ranks = [[b"rank %d step %d\n" % (rank, step) for step in range(12)] for rank in (0, 1)]
        script = sorted(ranks[0] + ranks[1], key=lambda _: dice.random())
        valve, out = Valve(), b""
        text = b"".join(script)
        image = dice.choice([dice.randrange(len(text)), text.index(dice.choice(script))])
        fault = dice.choice([dice.randrange(image, len(text) + 1), len(text)])
        out += fed(valve, dice, text[:image])
        valve.mark(1)
        out += fed(valve, dice, text[image:fault])
        out += valve.back(1)
        ends = {0, *(at + 1 for at, byte in enumerate(text) if byte == ord("\n"))}
        if not {image, fault} <= ends:  # what was begun goes on in the same place
            out += fed(valve, dice, text[image:]) + valve.end()
            assert out == text
            continue
        again = text[image:].splitlines(keepends=True)  # each rank keeps its order
        late = sorted(again, key=lambda line: line.startswith(b"rank 0"))
        out += fed(valve, dice, b"".join(late)) + valve.end()
        assert sorted(out.splitlines()) == sorted(text.splitlines())


def fed(valve: Valve, dice: random.Random, text: bytes) -> bytes:
    """Give a valve a text in pieces."""
    out = b""
    while text:
        size = dice.randrange(1, 40)
        out += valve.take(text[:size])
        text = text[size:]
    return out


@pytest.fixture
def ends() -> tuple[int, int, Pump]:
    """Return where a command writes, where its output arrives, and the pump between them."""
    source, written = os.pipe()
    arrived, target = os.pipe()
    pump = Pump(source, target)
    pump.start()
    return written, arrived, pump


def test_a_pump_does_what_it_is_told_after_what_was_printed(ends: tuple[int, int, Pump]) -> None:
    written, arrived, pump = ends
    os.write(written, b"before\n")
    pump.order("mark", 1)
    until = time.monotonic() + 60
    while not pump._valve._marks and time.monotonic() < until:
        time.sleep(0.01)
    os.write(written, b"1\n2\n")
    pump.order("back", 1)
    while not pump._valve._left and time.monotonic() < until:
        time.sleep(0.01)
    os.write(written, b"1\n2\n3")
    pump.order("end")
    pump.join(60)
    assert os.read(arrived, 1000) == b"before\n1\n2\n3"
    for fd in (written, arrived):
        os.close(fd)


def test_a_reader_that_has_gone_is_told_to_the_command(ends: tuple[int, int, Pump]) -> None:
    written, arrived, pump = ends
    os.close(arrived)
    os.write(written, b"1\n")
    pump.join(60)
    assert not pump.is_alive()
    with pytest.raises(BrokenPipeError):
        os.write(written, b"2\n")
    os.close(written)


def test_a_slow_reader_gets_all_where_writers_do_not_wait() -> None:
    """Some other process has set O_NONBLOCK for the pipe or terminal that both have as stdout."""
    source, written = os.pipe()
    arrived, target = os.pipe()
    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(target, False)
    pump = Pump(source, target)
    pump.start()
    lines = b"a line\n" * 4096
    os.write(written, lines)
    os.close(written)
    pump.join(0.3)  # it has taken all, and the reader's pipe is full
    assert pump.is_alive()
    got = b""
    while len(got) < len(lines):
        got += os.read(arrived, 1 << 16)
    assert got == lines
    pump.join(60)
    os.close(arrived)
    os.close(target)


def test_a_reader_that_stalls_does_not_mix_up_before_and_after() -> None:
    """What the lost processes have printed, and what comes again, is in the pipe at once."""
    source, written = os.pipe()
    arrived, target = os.pipe()
    fcntl.fcntl(target, fcntl.F_SETPIPE_SZ, 4096)
    pump = Pump(source, target)
    pump.start()
    long = b"x" * 8192 + b"\n"  # more than the reader's pipe holds
    os.write(written, b"before\n")
    pump.order("mark", 1)
    os.write(written, long)
    until = time.monotonic() + 60
    while _left_in(source) and time.monotonic() < until:  # then it waits for the reader
        time.sleep(0.001)
    os.write(written, b"1\n2\nlast")
    pump.order("back", 1)
    os.write(written, long + b"1\n2\nlast line\n3\n")
    pump.order("mark", 2)
    os.write(written, b"4\n")
    pump.order("back", 2)
    os.write(written, b"4\n5\n")
    pump.order("end")
    os.close(written)
    out = bytearray()
    reader = threading.Thread(target=lambda: out.extend(_all_of(arrived)))
    reader.start()
    pump.join(60)
    os.close(target)
    reader.join(60)
    assert bytes(out) == b"before\n" + long + b"1\n2\nlast line\n3\n4\n5\n"


def _left_in(pipe: int) -> int:
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


def _all_of(pipe: int) -> bytes:
    with os.fdopen(pipe, "rb") as file:
        return file.read()

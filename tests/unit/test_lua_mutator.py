from __future__ import annotations

import pytest

from tools.lua_mutator import BOUNDARY, DELETE, NEUTRAL, OTHER_END, mutants_of
from tools.lua_tokens import LuaSyntaxError

SCRIPT = """\
#!lua flags=allow-oom
-- Move one id, if `a < b` holds; redis.call in a comment is not a call.
-- KEYS[1] pending: the list

local id = redis.call('RPOP', KEYS[1])
if not id then
  return 0
end
if redis.call(
    "EXISTS", KEYS[2]) == 1 and #id <= 40 then
  redis.call('LPUSH', KEYS[1],
    id)
end
return 1
"""


def test_the_mutants_of_a_whole_script_are_exactly_these() -> None:
    """A neutral read, a neutral condition, a moved boundary, a deleted write and its other end."""
    assert [
        (5, NEUTRAL, "local id = redis.call('RPOP', KEYS[1])"),
        (9, NEUTRAL, "if redis.call("),
        (10, BOUNDARY, '"EXISTS", KEYS[2]) == 1 and #id <= 40 then'),
        (11, DELETE, "redis.call('LPUSH', KEYS[1],"),
        (11, OTHER_END, "redis.call('LPUSH', KEYS[1],"),
    ] == [(mutant.line, mutant.kind, mutant.text) for mutant in mutants_of(SCRIPT)]


def test_a_mutant_differs_from_its_script_in_one_place_only() -> None:
    """The statement over two lines is gone as a whole, everything else is as it was."""
    deleted = next(mutant for mutant in mutants_of(SCRIPT) if mutant.kind == DELETE)

    assert SCRIPT.replace("redis.call('LPUSH', KEYS[1],\n    id)", "") == deleted.source


@pytest.mark.parametrize(
    ("statement", "mutated"),
    [
        ("redis.call('DEL', k)", ""),
        ("redis.pcall('DEL', k)", ""),
        ("x = redis.call('GET', k)", ""),
        ("t[#t + 1] = redis.call('GET', k)", ""),
        ("table.insert(t, redis.call('GET', k))", ""),
        ("local x = redis.call('GET', k)", "local x = false"),
        ("local a, b = unpack(redis.call('TIME'))", "local a, b = false"),
        ("local n = tonumber(redis.call('GET', k) or 0)", "local n = false"),
        ("return redis.call('GET', k)", "return false"),
        ("return {1, redis.call('GET', k)}", "return false"),
        ("if redis.call('GET', k) then n = 1 end", "if false then n = 1 end"),
        ("while redis.call('LLEN', k) ~= 0 do n = 1 end", "while false do n = 1 end"),
        ("repeat n = 1 until redis.call('LLEN', k) == 0", "repeat n = 1 until true"),
        ("for i, v in ipairs(redis.call('KEYS', k)) do n = i end", "for i, v in ipairs({}) do n = i end"),
        ("for i = 1, redis.call('LLEN', k) do n = i end", "for i = 1, 0 do n = i end"),
        ("if n then a() elseif redis.call('GET', k) then b() end", "if n then a() elseif false then b() end"),
    ],
)
def test_a_statement_that_calls_redis_is_deleted_or_gets_a_neutral_value(
    statement: str, mutated: str
) -> None:
    """Each form of statement has one rule."""
    assert [mutated] == [mutant.source for mutant in mutants_of(statement)]


@pytest.mark.parametrize(("operator", "swapped"), [("<", "<="), ("<=", "<"), (">", ">="), (">=", ">")])
def test_a_comparison_moves_its_boundary(operator: str, swapped: str) -> None:
    """Each ordering is swapped with its neighbour."""
    (mutant,) = mutants_of(f"if a {operator} b then c() end")

    assert (BOUNDARY, f"if a {swapped} b then c() end") == (mutant.kind, mutant.source)


def test_equality_and_strings_are_left_alone() -> None:
    """`==` and `~=` are not boundaries, and text that looks like an operator is text."""
    assert [] == mutants_of('if a == \'<\' or a ~= "<=" then b("it\'s >", [[ >= ]]) end --[[ < ]]')


def test_the_statements_of_a_function_belong_to_its_body() -> None:
    """A function that calls Redis is not deleted as a whole, however it is defined."""
    for definition in ("local function f(a, ...)", "local f = function(a)", "function m.f()"):
        source = f"{definition} redis.call('DEL', a) end"

        assert [f"{definition}  end"] == [mutant.source for mutant in mutants_of(source)]


def test_an_alias_of_redis_call_is_seen() -> None:
    """The alias itself stays: without it every script would fail at once and prove nothing."""
    source = "local call = redis.call\ncall('DEL', k)\nother('DEL', k)"

    assert [(2, DELETE)] == [(mutant.line, mutant.kind) for mutant in mutants_of(source)]


def test_methods_tables_and_calls_without_brackets_are_understood() -> None:
    """The grammar is Lua's, not only the part that scripts use most."""
    source = "local t = {1, x = -2 ^ 3, ['y'] = not n; f{a}, g'b'}; s:gsub('.', t[1].z); (h or i)(); return"

    assert [] == mutants_of(source)


@pytest.mark.parametrize("source", ["if a then", "local = 1", "x = = 1", "f(", "a ? b"])
def test_what_is_not_lua_is_an_error_with_its_line(source: str) -> None:
    """A mutator that misread a script would check nothing, so it refuses."""
    with pytest.raises(LuaSyntaxError, match=r"^line 2: "):
        mutants_of(f"\n{source}")

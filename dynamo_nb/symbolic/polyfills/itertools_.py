"""itertools in Python (library reference, itertools: each function by its documented behaviour)."""

from __future__ import annotations

from typing import Any

_MISSING = object()


def chain(*iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def chain_from_iterable(iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for item in iterator:
        total = total + item if func is None else func(total, item)
        yield total


def compress(data: Any, selectors: Any) -> Any:
    for item, keep in zip(data, selectors):  # noqa: B905 - stops at the shorter one by definition
        if keep:
            yield item


def count(start: Any = 0, step: Any = 1) -> Any:
    n = start
    while True:
        yield n
        n = n + step


def cycle(iterable: Any) -> Any:
    saved = []
    for item in iterable:
        yield item
        saved.append(item)
    while saved:
        for item in saved:
            yield item


def dropwhile(predicate: Any, iterable: Any) -> Any:
    iterator = iter(iterable)
    for item in iterator:
        if not predicate(item):
            yield item
            break
    for item in iterator:
        yield item


def takewhile(predicate: Any, iterable: Any) -> Any:
    for item in iterable:
        if not predicate(item):
            break
        yield item


def filterfalse(predicate: Any, iterable: Any) -> Any:
    for item in iterable:
        if not (item if predicate is None else predicate(item)):
            yield item


def starmap(function: Any, iterable: Any) -> Any:
    for args in iterable:
        yield function(*args)


def pairwise(iterable: Any) -> Any:
    iterator = iter(iterable)
    try:
        left = next(iterator)
    except StopIteration:
        return
    for right in iterator:
        yield left, right
        left = right


def islice(iterable: Any, *bounds: Any) -> Any:
    spec = slice(*bounds)
    start = 0 if spec.start is None else spec.start
    step = 1 if spec.step is None else spec.step
    stop = spec.stop
    if start < 0 or (stop is not None and stop < 0):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _islice(iter(iterable), start, stop, step)


def _islice(iterator: Any, start: int, stop: Any, step: int) -> Any:
    position = 0
    wanted = start
    while stop is None or position < stop:
        if wanted >= stop if stop is not None else False:
            while position < stop:
                try:
                    next(iterator)
                except StopIteration:
                    return
                position += 1
            return
        try:
            item = next(iterator)
        except StopIteration:
            return
        if position == wanted:
            yield item
            wanted += step
        position += 1


def repeat(obj: Any, times: Any = _MISSING) -> Any:
    if times is _MISSING:
        return _repeat_forever(obj)
    return _repeat(obj, times)


def _repeat_forever(obj: Any) -> Any:
    while True:
        yield obj


def _repeat(obj: Any, times: int) -> Any:
    for _ in range(times):
        yield obj


def zip_longest(*iterables: Any, fillvalue: Any = None) -> Any:
    iterators = [iter(it) for it in iterables]
    active = [True] * len(iterators)
    while True:
        row = []
        for i, iterator in enumerate(iterators):
            if not active[i]:
                row.append(fillvalue)
                continue
            try:
                row.append(next(iterator))
            except StopIteration:
                active[i] = False
                row.append(fillvalue)
        if not any(active):
            return
        yield tuple(row)


def product(*iterables: Any, repeat: int = 1) -> Any:
    pools = [tuple(pool) for pool in iterables] * repeat
    rows: list[Any] = [()]
    for pool in pools:
        rows = [(*row, item) for row in rows for item in pool]
    return iter(rows)


def combinations(iterable: Any, r: int) -> Any:
    pool = tuple(iterable)
    return iter([tuple(pool[i] for i in chosen) for chosen in _increasing(len(pool), r, 1)])


def combinations_with_replacement(iterable: Any, r: int) -> Any:
    pool = tuple(iterable)
    return iter([tuple(pool[i] for i in chosen) for chosen in _increasing(len(pool), r, 0)])


def _increasing(n: int, r: int, gap: int) -> Any:
    rows: list[Any] = [()]
    for _ in range(r):
        rows = [(*row, i) for row in rows for i in range(row[-1] + gap if row else 0, n)]
    return rows


def permutations(iterable: Any, r: Any = None) -> Any:
    pool = tuple(iterable)
    count_ = len(pool) if r is None else r
    rows: list[Any] = [()]
    for _ in range(count_):
        rows = [(*row, i) for row in rows for i in range(len(pool)) if i not in row]
    return iter([tuple(pool[i] for i in row) for row in rows])


def tee(iterable: Any, n: int = 2) -> Any:
    iterator = iter(iterable)
    seen: list[Any] = []

    def reader() -> Any:
        position = 0
        while True:
            if position == len(seen):
                try:
                    seen.append(next(iterator))
                except StopIteration:
                    return
            yield seen[position]
            position += 1

    return tuple(reader() for _ in range(n))


def groupby(iterable: Any, key: Any = None) -> Any:
    iterator = iter(iterable)
    state: list[Any] = [_MISSING, _MISSING, 0]      # the item not handed out yet, its key, the group's number

    def advance() -> bool:
        try:
            state[0] = next(iterator)
        except StopIteration:
            state[0] = _MISSING
            return False
        state[1] = state[0] if key is None else key(state[0])
        return True

    def group(number: int, current: Any) -> Any:
        while number == state[2] and state[0] is not _MISSING and state[1] == current:
            item = state[0]
            state[0] = _MISSING
            yield item
            if number != state[2] or not advance():
                return

    first = True
    previous: Any = _MISSING
    while True:
        if state[0] is _MISSING and not advance():
            return
        while not first and state[1] == previous:
            if not advance():
                return
        first = False
        previous = state[1]
        state[2] += 1
        yield previous, group(state[2], previous)


TABLE: dict[str, Any] = {
    fn.__name__: fn
    for fn in (
        chain, accumulate, compress, count, cycle, dropwhile, takewhile, filterfalse, starmap, pairwise, islice, repeat,
        zip_longest, product, combinations, combinations_with_replacement, permutations, tee, groupby,
    )
}

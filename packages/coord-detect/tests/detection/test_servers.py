"""Which server of several is asked next."""

from coord_detect.served import servers
from coord_detect.served.servers import Servers


def test_server_with_the_fewest_requests_is_next_and_a_lost_one_last_until_it_has_rested(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(servers.time, "monotonic", lambda: clock[0])
    each = Servers(("a", "b", "c"))
    with each.least_busy() as first, each.least_busy() as second, each.least_busy(["c"]) as third:
        assert (first, second, third) == ("a", "b", "a")
        with each.least_busy() as idle:
            assert idle == "c"
    with each.least_busy() as again:
        assert again == "a"  # all are idle again
    each.move_on("a", is_lost=True)
    each.move_on("b", is_lost=False)  # one that is only busy is asked as before
    assert each.moved == {"a": 1, "b": 1}
    with each.least_busy() as one, each.least_busy() as other, each.least_busy() as busy:
        assert (one, other, busy) == ("b", "c", "b")  # rather a busy one than one that is lost
        with each.least_busy(["b", "c"]) as last:
            assert last == "a"
    clock[0] += servers._REST - 0.1
    with each.least_busy() as one:
        assert one == "b"
    clock[0] += 0.1
    with each.least_busy() as one:
        assert one == "a"

"""The process and its event loop. The names `process_` are those of all clients of Prometheus."""

from collections.abc import Mapping

from ottla.env.loop_watch import LoopWatch
from ottla.env.process_usage import ProcessUsage, read_process_usage
from ottla.env.threads import Threads
from ottla.metrics import Collection, Collector, Family, GaugeCollector, Kind

FAMILIES = (
    Family("process_cpu_seconds_total", Kind.COUNTER, "Processor time of the process, user and system."),
    Family("process_start_time_seconds", Kind.GAUGE, "When the process started, since the Unix epoch."),
    Family("process_resident_memory_bytes", Kind.GAUGE, "Memory of the process that is in RAM."),
    Family(
        "process_virtual_memory_bytes", Kind.GAUGE, "Address space of the process, mapped files included."
    ),
    Family("process_open_fds", Kind.GAUGE, "Open file descriptors."),
    Family("process_max_fds", Kind.GAUGE, "How many file descriptors may be open."),
    Family(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        Kind.GAUGE,
        "The part of the time, from 0 to 1, in which the event loop used no processor since the scrape before.",
    ),
    Family(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        Kind.GAUGE,
        "The same value: one event loop handles requests and the network.",
    ),
    Family("ottla_event_loop_cpu_seconds_total", Kind.COUNTER, "Processor time of the event loop."),
    Family(
        "ottla_event_loop_longest_turn_seconds",
        Kind.GAUGE,
        "The longest turn of the event loop since the broker started. All clients wait for it.",
    ),
)


class ProcessCollector(Collector):
    families = FAMILIES

    def __init__(self, threads: Threads, watch: LoopWatch) -> None:
        self._threads = threads
        self._watch = watch
        self._before = watch.usage()

    async def start(self) -> Collection[None]:
        usage = await self._threads.run(read_process_usage)
        return await GaugeCollector(FAMILIES, lambda: self._values(usage)).start()

    def _values(self, usage: ProcessUsage | None) -> Mapping[str, float]:
        of_process = {} if usage is None else dict(zip((f.name for f in FAMILIES[:6]), usage, strict=True))
        # Called on the event loop, so this is the processor time of its thread.
        now_s, used_s = self._watch.usage()
        (before_s, used_before_s), self._before = self._before, (now_s, used_s)
        idle = 1 - (used_s - used_before_s) / max(now_s - before_s, 1e-6)
        values = (max(0.0, min(1.0, idle)),) * 2 + (used_s, self._watch.longest_turn_ms / 1000)
        return {**of_process, **dict(zip((f.name for f in FAMILIES[6:]), values, strict=True))}

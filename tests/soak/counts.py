"""What the clients have counted, to be compared with what the server counts."""

from collections import defaultdict

REASONS = ("stop", "length", "abort", "error", "repetition")
PROBES = frozenset({"/health", "/metrics"})


class Counts:
    """Numbers by name, each with how much more of it there may be where a client cannot know."""

    def __init__(self):
        self._sure = defaultdict(int)
        self._unsure = defaultdict(int)

    def add(self, *name, sure=1, unsure=0):
        """Count something."""
        self._sure[name] += sure
        self._unsure[name] += unsure

    def answered(self, handler, *statuses):
        """Count a request by the class of its status, which may be one of several."""
        if not handler or handler in PROBES:
            return
        self.add("http", handler)
        for status in statuses:
            self.add(
                *("http", handler, f"{status // 100}xx"),
                sure=len(statuses) == 1,
                unsure=len(statuses) > 1,
            )

    def finished(self, finish, samples):
        """Count samples that have ended with an answer."""
        if finish == "stop string":
            self.add("aborted", "stop_string", sure=samples)
            finish = "stop"
        if finish == "abort":
            self.add("aborted", "abandoned", sure=samples)
        else:
            self.add("success", finish, sure=samples)

    def forget(self, *name):
        """Leave something out of the comparison with the metrics."""
        self._sure.pop(name, None)
        self._unsure.pop(name, None)

    def sure(self, *name):
        return self._sure[name]

    def differences(self, metrics):
        """Say where metrics of the server are not what was counted here."""
        told = _told(metrics)
        return [
            f"{' '.join(name)}: the server counts {told[name]:g}, the clients "
            f"{self._sure[name]} to {self._sure[name] + self._unsure[name]}"
            for name in sorted({*told, *self._sure})
            if not 0 <= told[name] - self._sure[name] <= self._unsure[name]
        ]


def _told(metrics):
    told = defaultdict(float)
    for (name, labels), value in metrics.items():
        labels = dict(labels)
        match name:
            case "http_requests_total":
                told["http", labels["handler"]] += value
                told["http", labels["handler"], labels["status"]] += value
            case "vllm:request_success_total":
                told["success", labels["finished_reason"]] += value
            case "umbel:aborted_samples_total":
                told["aborted", labels["reason"]] += value
            case "umbel:client_disconnects_total":
                told[("disconnects",)] += value
            case "umbel:client_write_timeouts_total":
                told[("write timeouts",)] += value
            case "vllm:admission_rejections_total":
                told["rejected", labels["reason"]] += value
    return told

"""View of a sweep in MLflow's page: trials best first, searched settings, the important charts.

MLflow stores a *view* of an experiment's runs as a tag of the experiment; the page offers it under
"Views", and an address with its name opens it. Without one MLflow shows a chart of every metric by
name, and a table without settings.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import ORDER, expected_key, key, score_key
from sweep.trackers._shared.mlflow_store import PARENT

#: Prefix of the tags of views.
TAG = "mlflow.sharedViewState."
#: Parameter of the address that shows runs, as of machine learning.
MODE = {"workflowType": "machine_learning"}
#: Parameter of the address that shows the charts.
CHARTS = {"compareRunsMode": "CHART"}
#: Maximum length of a tag; MLflow accepts slightly more.
LONGEST = 16_000
#: Number of runs that MLflow's page lists and draws at first.
AT_FIRST = 100
#: Remark of a page that has more trials.
MORE = f"the best {AT_FIRST} trials; “Load more” below the list adds the next"


def tag(context: TrackerContext) -> str:
    """Return the name of the tag that holds the sweep's view of its experiment."""
    return f"{TAG}{context.sweep_id}"


def address(page: str, experiment: int, sweep_id: str | None) -> str:
    """Return the address of an experiment's runs on MLflow's page at `page`.

    It opens the view of the sweep `sweep_id`, if given.
    """
    wanted = {**MODE, **CHARTS, **({"viewStateShareKey": sweep_id} if sweep_id else {})}
    return f"{page}/#/experiments/{experiment}/runs?{urlencode(wanted, quote_via=quote)}"


def view(context: TrackerContext, parent: str, trials: int) -> str:
    """Return the value of the tag that holds the sweep's view, as JSON.

    `parent` is the ID of its own run. If the tag would be too long, only the first searched
    settings are shown. Settings that begin with ``_`` are left out unless all do. If the page does
    not show all trials at first, the heading of the charts says so.
    """
    searched = [name for name in context.spec.space.searched if not name.startswith("_")]
    names = searched or list(context.spec.space.searched)
    heading = f"{context.name}: {MORE}" if trials > AT_FIRST else context.name
    while len(made := _view(context, parent, names, heading)) > LONGEST:
        names = names[: len(names) // 2]
    return made


def _view(context: TrackerContext, parent: str, names: Sequence[str], heading: str) -> str:
    """Return a view of MLflow's page as JSON, with columns for these settings and charts."""
    spec = context.spec
    score, metric, params = score_key(spec.metric), key(spec.metric), [key(name) for name in names]
    section = f"{context.sweep_id[:12]}-section"
    line, parallel = (_chart(section, number, name) for number, name in enumerate((metric, "")))
    state = {
        "searchFilter": f"tags.`{PARENT}` = '{parent}'",
        "orderByKey": f"tags.`{ORDER}`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [
            *(f"metrics.`{name}`" for name in (expected_key(spec.metric), score, metric)),
            *(f"params.`{name}`" for name in params),
        ],
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOW_ALL",
        "compareRunCharts": [
            {
                **line,
                "type": "LINE",
                "metricKey": metric,
                "selectedMetricKeys": [metric],
                "lineSmoothness": 0,
                "xAxisScaleType": "linear",
                "scaleType": "linear",
                "range": {},
                "xAxisKey": "step",
                "selectedXAxisMetricKey": "",
                "yAxisKey": "metric",
                "yAxisExpressions": [],
                "ignoreOutliers": False,
                "useGlobalXaxisKey": True,
                "useGlobalLineSmoothing": True,
            },
            {
                **parallel,
                "type": "PARALLEL",
                "selectedParams": params,
                "selectedMetrics": [score],
                "showAllRuns": True,
            },
        ],
        "compareRunSections": [
            {
                "uuid": section,
                "name": heading,
                "display": True,
                "isReordered": False,
                "deleted": False,
                "isGenerated": False,
            }
        ],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {
            "xAxisKey": "step",
            "lineSmoothness": 0,
            "selectedXAxisMetricKey": "",
        },
    }
    made = int(context.created_at * 1000)
    named = {"name": f"trials of {context.name}", "createdAt": made, "updatedAt": made}
    return json.dumps({**named, "state": json.dumps(state)})


def _chart(section: str, number: int, name: str) -> dict[str, Any]:
    """Return the fields that all charts of a view have; `number` is the index of the chart.

    `section` is the ID of the section that contains it, `name` its title; if empty, MLflow makes
    one.
    """
    return {
        "uuid": f"{section}-{number}",
        "runsCountToCompare": AT_FIRST,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        **({"displayName": name} if name else {}),
    }

// Draws the pictures of a report from its data, when they come into sight, in the colours of the page.
// Text of users reaches Plotly only through `safe`: it takes some tags for markup.
(() => {
  "use strict";
  const root = document.documentElement;
  const all = location.hash === "#all";
  const phone = () => window.innerWidth < 600;
  const paper = () => root.classList.contains("paper");
  const widest = () => (paper() ? 660 : Math.min(1000, window.innerWidth - 60));
  const text = (id) => document.getElementById(id).textContent;
  const safe = (word) => String(word).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const last = (path) => safe(path.split("/").pop());
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const number = (value) => (value === null ? "–" : safe(Number(value).toPrecision(4).replace(/\.?0+(e|$)/, "$1")));
  const range = (count) => [...Array(count).keys()];
  const scale = () => [[0, color("scale-0")], [0.55, color("scale-1")], [1, color("scale-2")]];
  const palette = () => range(6).map((place) => color("c" + place));

  const unzip = async (id) => {
    const bytes = Uint8Array.from(atob(text(id)), (sign) => sign.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  const axis = (title, more) => ({
    title: { text: title, font: { size: 12 }, standoff: 8 }, gridcolor: color("grid"), linecolor: color("line"),
    zeroline: false, automargin: true, tickangle: 0, tickfont: { size: 11 }, fixedrange: phone(), ...more,
  });
  // Room below the axis for so many names in the legend.
  const below = (count) => ({ showlegend: true, margin: { l: 8, r: 8, t: 8, b: 50 + 19 * Math.ceil((count * 112) / widest()) } });
  const layout = (more) => ({
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest", showlegend: false,
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, Arial, sans-serif", size: 12, color: color("muted") },
    margin: { l: 8, r: 8, t: 8, b: 8 }, dragmode: phone() ? false : "zoom",
    hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("ink"), size: 12 }, align: "left" },
    legend: { orientation: "h", x: 0, yref: "container", y: 0, yanchor: "bottom", font: { size: 11 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("muted"), activecolor: color("accent") }, ...more,
  });
  // Dotted lines across a picture, each with its name.
  const marked = (places) => ({
    shapes: places.map(([at]) => ({ type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { dash: "dot", color: color("warn"), width: 1 } })),
    annotations: places.map(([at, name]) => ({ x: at, y: 1, yref: "paper", text: name, showarrow: false, textangle: -90, xanchor: "right", yanchor: "top", font: { size: 10.5, color: color("muted") } })),
  });
  const logticks = (low, high) => {
    const powers = range(Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low)) + 1).map((up) => 10 ** (Math.floor(Math.log10(low)) + up));
    const inside = (ticks) => ticks.filter((tick) => tick >= low * 0.99 && tick <= high * 1.01);
    const steps = (...factors) => inside(powers.flatMap((power) => factors.map((factor) => factor * power)));
    const whole = steps(1), fine = steps(1, 2, 5);
    return whole.length > 2 ? whole : fine.length > 6 ? steps(1, 3) : fine; // on a phone, more run together
  };
  // Most of what was measured, where a few values lie far off; else all.
  const span = (values) => {
    const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
    if (sorted.length < 20) return undefined;
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const [low, high] = [at(0.02), at(0.98)];
    if (high <= low || at(1) - at(0) < 4 * (high - low)) return undefined;
    return [low - 0.1 * (high - low), high + 0.1 * (high - low)];
  };
  const clock = (total) => {
    const [unit, name] = total > 7200 ? [3600, "hours"] : total > 240 ? [60, "minutes"] : [1, "seconds"];
    return { of: (seconds) => (seconds === null ? null : seconds / unit), name };
  };

  const pictures = {
    learning(data, page) {
      const join = (curves, style, name) => {
        const x = [], y = [], which = [];
        for (const curve of curves) {
          x.push(...curve.x, null); y.push(...curve.y, null);
          which.push(...curve.x.map(() => curve.trial), null);
        }
        return {
          x, y, customdata: which, mode: "lines", name, line: { width: curves.length > 200 ? 0.5 : 1, ...style }, connectgaps: false,
          hovertemplate: "trial %{customdata}<br>%{y:.5g} at %{x:.5g}<extra></extra>",
        };
      };
      const rest = data.curves.filter((curve) => curve.place === null);
      const early = rest.filter((curve) => curve.early), whole = rest.filter((curve) => !curve.early);
      const traces = [];
      if (early.length) traces.push(join(early, { color: color("faded") }, "stopped early"));
      if (whole.length) traces.push(join(whole, { color: color("plain") }, "others"));
      const best = data.curves.filter((curve) => curve.place !== null), colors = palette();
      for (const curve of best) {
        const paint = colors[curve.place % colors.length];
        if (curve.low && curve.place < 2) {
          traces.push({
            x: [...curve.x, ...[...curve.x].reverse()], y: [...curve.high, ...[...curve.low].reverse()], fill: "toself",
            fillcolor: paint, opacity: 0.12, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: curve.trial,
          });
        }
        traces.push({
          x: curve.x, y: curve.y, mode: curve.x.length < 2 ? "markers" : "lines", name: "trial " + curve.trial,
          legendrank: curve.place, legendgroup: curve.trial, line: { color: paint, width: curve.place === 0 ? 3 : 1.8 },
          hovertemplate: `trial ${curve.trial}<br>%{y:.5g} at %{x:.5g}<extra></extra>`,
        });
      }
      const y = data.curves.flatMap((curve) => curve.y), bands = best.some((curve) => curve.low);
      const [least, most] = y.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
      const room = 0.12 * (most - least || 1), whole_of = bands ? [least - room, most + room] : undefined;
      return [traces, layout({
        ...below(best.length + 2), ...marked(data.ends.map((at) => [at, "earlier end"])),
        xaxis: axis(last(data.time)), yaxis: axis(safe(page.metric), { range: span(y) || whole_of }),
      })];
    },

    search(data, page) {
      const time = clock(data.end);
      const marker = (early) => ({
        size: early ? 5 : 7, color: early ? color("faded") : color("plain"), line: { width: 0 },
      });
      const some = (early) => range(data.x.length).filter((place) => data.early[place] === early);
      const points = (early, name) => ({
        x: some(early).map((place) => time.of(data.x[place])), y: some(early).map((place) => data.y[place]),
        customdata: some(early).map((place) => data.trials[place]), mode: "markers", marker: marker(early), name,
        hovertemplate: "trial %{customdata}<br>%{y:.5g}<extra></extra>",
      });
      const best = {
        x: [...data.best.x, data.end].map(time.of), y: [...data.best.y, data.best.y[data.best.y.length - 1]],
        customdata: [...data.best.trials, data.best.trials[data.best.trials.length - 1]], mode: "lines+markers", name: "best so far",
        line: { shape: "hv", color: color("accent"), width: 2.5 }, marker: { size: [...data.best.x.map(() => 7), 0] },
        hovertemplate: "best: trial %{customdata}<br>%{y:.5g}<extra></extra>",
      };
      return [[points(true, "stopped early"), points(false, "completed"), ...(data.best.x.length ? [best] : [])], layout({
        ...below(3), ...marked(data.changes.map(([at, what]) => [time.of(at), what === "space" ? "other space" : "later end"])),
        xaxis: axis(time.name + " since the start", { rangemode: "tozero" }), yaxis: axis(safe(page.metric), { range: span(data.y) }),
      })];
    },

    parallel(data, page, share) {
      // Axes side by side, on a phone one below the other; a line for each trial, the best on top.
      const down = phone();
      const score = { name: page.metric, values: data.scores, low: Math.min(...data.scores), high: Math.max(...data.scores) };
      const axes = [...data.axes, score].map((one) => place(one, data.trials.length));
      const order = range(data.trials.length).filter((row) => data.better[row] >= 1 - share);
      const bins = 12, traces = [], thin = order.length > 200 ? 0.4 : 1;
      for (const bin of range(bins)) {
        const rows = order.filter((row) => Math.min(bins - 1, Math.floor(data.better[row] * bins)) === bin);
        if (!rows.length) continue;
        const along = [], across = [], hover = [];
        for (const row of rows) {
          axes.forEach((one, index) => {
            along.push(index); across.push(one.at[row]);
            hover.push(`trial ${data.trials[row]}: ${number(data.scores[row])}<br>${safe(one.name)} ${one.label(row)}`);
          });
          along.push(null); across.push(null); hover.push("");
        }
        const good = (bin + 0.5) / bins;
        traces.push({
          x: down ? across : along, y: down ? along : across, text: hover, hoverinfo: "text", mode: "lines",
          line: { color: mix(good), width: thin * (0.8 + 1.6 * good ** 3) }, opacity: 0.35 + 0.65 * good,
        });
      }
      const shapes = axes.map((_, index) => ({
        type: "line", line: { color: color("muted"), width: 1 }, layer: "above",
        ...(down ? { x0: 0, x1: 1, y0: index, y1: index } : { x0: index, x1: index, y0: 0, y1: 1 }),
      }));
      // Names that would run into each other are tilted; a letter is some 7 pixels wide.
      const longest = Math.max(...axes.map((one) => last(one.name).length)) * 7, tilted = !down && longest * axes.length > 900;
      const annotations = axes.flatMap((one, index) => [
        {
          text: `<b>${last(one.name)}</b>`, showarrow: false, font: { size: 12, color: color("ink") }, ...(down ? { bgcolor: color("card"), borderpad: 0, opacity: 0.9 } : {}),
          ...(tilted ? { x: index, y: 1, textangle: -25, xanchor: "left", yanchor: "bottom", yshift: 4, xshift: -6 } : down ? { x: 0, y: index, xanchor: "left", yanchor: "bottom", yshift: 4 } : { x: index, y: 1, yanchor: "bottom", yshift: 8, xanchor: index === 0 ? "left" : index === axes.length - 1 ? "right" : "center", xshift: index === 0 ? -24 : index === axes.length - 1 ? 44 : 0 }),
        },
        ...one.ticks.map(([at, label]) => ({
          text: label, showarrow: false, font: { size: 10.5, color: color("muted") },
          ...(down ? { x: at, y: index, yanchor: "top", yshift: -3, bgcolor: color("card"), borderpad: 0, opacity: 0.85, xanchor: at < 0.08 ? "left" : at > 0.92 ? "right" : "center", xshift: at < 0.08 ? -6 : at > 0.92 ? 6 : 0 } : { x: index, y: at, xanchor: "left", xshift: 4, bgcolor: color("card"), opacity: 0.85 }),
        })),
      ]);
      const hidden = { visible: false, fixedrange: true };
      return [traces, layout({
        shapes, annotations, margin: down ? { l: 14, r: 22, t: 12, b: 12 } : { l: 30, r: tilted ? 0.8 * longest : 50, t: tilted ? 36 + longest / 3 : 36, b: 12 },
        xaxis: { ...hidden, range: down ? [-0.02, 1.02] : [-0.05, axes.length - 0.9] },
        yaxis: { ...hidden, range: down ? [axes.length - 0.8, -0.3] : [-0.04, 1.04] },
      })];
    },

    importance(data) {
      const names = data.names.map((pair) => pair.map(safe).join(" × "));
      const shown = [...names, ...data.causes.map((cause) => cause.name)];
      const shares = [...data.shares, ...data.causes.map((cause) => cause.share)];
      const colors = [...data.names.map((pair) => (pair.length > 1 ? color("scale-1") : color("accent"))), ...data.causes.map(() => color("faded"))];
      return [[{
        type: "bar", orientation: "h", y: shown, x: shares, marker: { color: colors }, text: shares.map(percent),
        textposition: "outside", cliponaxis: false, hoverinfo: "skip", textfont: { color: color("muted") },
      }], layout({
        margin: { l: 8, r: 44, t: 8, b: 8 }, // room for the longest bar's share
        xaxis: axis("", { visible: false, range: [0, Math.max(...shares) * 1.02] }),
        yaxis: axis("", { autorange: "reversed", tickfont: { size: 12, color: color("ink") }, ticklen: 6, tickcolor: "rgba(0,0,0,0)" }),
        bargap: 0.35,
      })];
    },

    levels(data) {
      const names = data.names.map((pair) => pair.map(safe).join(" × "));
      const z = names.map((_, row) => data.levels.map((level) => level.shares[row]));
      const upright = stands(data), x = data.levels.map((level) => `${safe(level.at)}${upright ? ": " : "<br>"}${level.trials} trials`);
      return [[{
        type: "heatmap", x, y: names, z, zmin: 0, zmax: Math.max(0.3, ...z.flat()), showscale: false, xgap: 3, ygap: 3,
        colorscale: [[0, color("page")], [1, color("accent")]], text: z.map((row) => row.map(percent)), texttemplate: "%{text}",
        hoverinfo: "skip",
      }], layout({
        xaxis: axis("", { type: "category", fixedrange: true, showgrid: false, tickangle: upright ? -90 : 0 }),
        yaxis: axis("", { autorange: "reversed", fixedrange: true, showgrid: false, tickfont: { size: 12, color: color("ink") } }),
      })];
    },

    slice(data, page, index) {
      const one = place(data.axes[index], data.trials.length), top = Math.max(1, ...data.rung);
      const jitter = data.axes[index].labels ? (row) => (((row * 0.618) % 1) - 0.5) * 0.5 : () => 0;
      const rows = range(data.trials.length);
      const x = rows.map((row) => one.raw(row) === null ? null : one.raw(row) + jitter(row));
      const here = rows.filter((row) => x[row] !== null), earlier = here.map((row) => data.trials[row] < data.since);
      const seen = here.map((row) => x[row]), is_log = one.axis.type === "log" && seen.length;
      const drawn = is_log ? { type: "log", ...powers(Math.min(...seen), Math.max(...seen)) } : one.axis; // ticks where points are
      return [[{
        x: here.map((row) => x[row]), y: here.map((row) => data.scores[row]), mode: "markers", hoverinfo: "text",
        text: here.map((row) => `trial ${data.trials[row]}: ${number(data.scores[row])}<br>${safe(one.name)} ${one.label(row)}`),
        marker: { size: here.length > 300 ? 4 : 7, color: here.map((row) => data.rung[row] / top), cmin: 0, cmax: 1, colorscale: scale(), symbol: earlier.map((its) => (its ? "circle-open" : "circle")), line: { width: earlier.map((its) => (its ? 1.5 : 0.5)), color: color("card") } },
      }], layout({
        xaxis: axis(safe(one.name), { ...drawn, showgrid: !data.axes[index].labels }),
        yaxis: axis("", { range: span(data.scores) }),
      })];
    },

    contour(data, page) {
      const [one, other] = data.axes;
      const along = (its) => its.labels
        ? { tickangle: "auto", tickvals: its.values, ticktext: its.labels.map(safe), showgrid: false }
        : its.log ? { type: "log", range: [its.values[0], its.values[its.values.length - 1]].map(Math.log10), ...powers(its.values[0], its.values[its.values.length - 1]) }
          : { range: [its.values[0], its.values[its.values.length - 1]] };
      const listed = Boolean(one.labels || other.labels);
      const z = other.values.map((_, row) => one.values.map((_, column) => data.z[column][row]));
      const traces = [{
        type: listed ? "heatmap" : "contour", x: one.values, y: other.values, z, colorscale: scale(),
        contours: listed ? undefined : { coloring: "heatmap", start: 0.1, end: 0.9, size: 0.1 },
        line: listed ? undefined : { width: 0.7, color: color("card") }, zmin: 0.1, zmax: 0.9,
        colorbar: { thickness: 10, outlinewidth: 0, tickformat: ".0%", len: 0.9, title: { text: phone() ? "" : "better than", side: "right" } },
        hovertemplate: "better than %{z:.0%} of the trials compared<extra></extra>",
      }];
      const seen = page.points;
      const find = (name) => seen && seen.axes.find((its) => its.name === name);
      const [p, q] = [find(one.name), find(other.name)];
      if (p && q) {
        const rows = range(seen.trials.length).filter((row) => p.values[row] !== null && q.values[row] !== null);
        traces.push({
          x: rows.map((row) => p.values[row]), y: rows.map((row) => q.values[row]), mode: "markers", hoverinfo: "text",
          marker: { size: rows.length > 300 ? 3 : 5, color: color("ink"), opacity: 0.75, line: { width: 1, color: color("card") } },
          text: rows.map((row) => `trial ${seen.trials[row]}: ${number(seen.scores[row])}`),
        });
      }
      return [traces, layout({ xaxis: axis(safe(one.name), along(one)), yaxis: axis(safe(other.name), along(other)) })];
    },

    timeline(data) {
      const time = clock(data.end), width = phone() ? 9 : data.lanes > 24 ? 5 : data.lanes > 10 ? 9 : 15;
      const kinds = [...new Set(data.bars.map((bar) => bar[3]))].sort((a, b) => a - b);
      const named = (kind) => kind === -2 ? "test seeds" : kind === -1 ? "to the end" : "to " + safe(data.levels[kind]);
      const count = Math.max(1, data.levels.length - 1);
      const paint = (kind) => kind === -2 ? color("c3") : kind === -1 ? color("scale-1") : mix(0.25 + 0.75 * kind / count);
      const traces = kinds.map((kind) => {
        const x = [], y = [], hover = [];
        for (const [start, end, lane, rung, who, why] of data.bars) {
          if (rung !== kind) continue;
          const label = `trial ${safe(who)}<br>${wrap(why)}`;
          x.push(time.of(start), time.of((start + end) / 2), time.of(end), null); y.push(lane, lane, lane, null);
          hover.push(label, label, label, "");
        }
        return {
          x, y, text: hover, hoverinfo: "text", mode: "lines", name: named(kind), line: { width, color: paint(kind), simplify: false },
        };
      });
      return [traces, layout({
        ...(kinds.length > 1 ? below(kinds.length) : {}),
        xaxis: axis(time.name + " since the start", { range: [0, time.of(data.end)] }),
        yaxis: axis("slot", { range: [data.lanes - 0.4, -0.6], tickvals: data.lanes <= 16 ? range(data.lanes) : undefined, showgrid: false }),
        shapes: data.terms.map((at) => ({ type: "line", x0: time.of(at), x1: time.of(at), y0: 0, y1: 1, yref: "paper", line: { dash: "dot", color: color("warn"), width: 1 } })),
      })];
    },

    rungs(data) {
      const names = data.rungs.map((rung, index) => safe(data.levels[index]));
      const bar = (name, values, paint) => ({
        type: "bar", x: names, y: values, name, marker: { color: paint }, hovertemplate: "%{y} " + name + "<extra></extra>",
      });
      return [[
        bar("went on, or done", data.rungs.map((rung) => rung.on), color("accent")), ...(data.rungs.some((rung) => rung.waiting) ? [bar("wait", data.rungs.map((rung) => rung.waiting), color("warn"))] : []),
        bar("ended there", data.rungs.map((rung) => rung.reached - rung.on - rung.waiting), color("faded")),
      ], layout({
        ...below(3), barmode: "stack", bargap: 0.4, xaxis: axis("rung", { type: "category", fixedrange: true, automargin: false }),
        yaxis: axis("trials", { rangemode: "tozero", nticks: 6 }),
      })];
    },

    lineage(data, page) {
      const scores = data.trials.map((one) => one.score).filter((score) => score !== null);
      const [low, high] = [Math.min(...scores), Math.max(...scores)];
      const good = (score) => {
        if (score === null) return 0;
        const share = high > low ? (score - low) / (high - low) : 1;
        return page.mode === "max" ? share : 1 - share;
      };
      const traces = [], by = Object.fromEntries(data.trials.map((one) => [one.trial, one]));
      const births = { x: [], y: [] };
      for (const one of data.trials) {
        if (one.parent === null) continue;
        births.x.push(one.from, one.from, null); births.y.push(by[one.parent].row, one.row, null);
      }
      traces.push({ ...births, mode: "lines", line: { color: color("faded"), width: 1 }, hoverinfo: "skip" });
      for (const best of [false, true]) for (const bin of range(6)) {
        const x = [], y = [], hover = [];
        for (const one of data.trials) {
          if (one.best !== best || Math.min(5, Math.floor(good(one.score) * 6)) !== bin) continue;
          const parent = one.parent === null ? "" : `, from trial ${one.parent}`;
          const label = `trial ${one.trial}: ${number(one.score)}${parent}<br>${wrap(one.settings)}`;
          x.push(one.from, (one.from + one.to) / 2, one.to, null); y.push(one.row, one.row, one.row, null);
          hover.push(label, label, label, "");
        }
        if (x.length) traces.push({
          x, y, text: hover, hoverinfo: "text", mode: "lines",
          line: { color: best ? color("c1") : mix((bin + 0.5) / 6), width: best ? 7 : 5, simplify: false },
        });
      }
      return [traces, layout({
        xaxis: axis(last(data.time)), yaxis: axis("", { visible: false, range: [data.rows - 0.4, -0.6] }),
      })];
    },

    // Of several sweeps: the curves of their best trials, with bands over seeds.
    best_curves(data, page) {
      const traces = [];
      data.curves.forEach((curve) => {
        const style = line(curve.place), group = String(curve.place);
        if (curve.low) traces.push({
          x: [...curve.x, ...[...curve.x].reverse()], y: [...curve.high, ...[...curve.low].reverse()], fill: "toself",
          fillcolor: style.color, opacity: 0.12, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: group,
        });
        traces.push({
          x: curve.x, y: curve.y, mode: curve.x.length < 2 ? "markers" : "lines", name: named(curve), legendgroup: group, line: style,
          hovertemplate: `${named(curve)}, trial ${curve.trial}<br>%{y:.5g} at %{x:.5g}<extra></extra>`,
        });
      });
      const y = data.curves.flatMap((curve) => curve.y), room = 0.12 * (Math.max(...y) - Math.min(...y) || 1);
      const whole = data.curves.some((curve) => curve.low) ? [Math.min(...y) - room, Math.max(...y) + room] : undefined;
      return [traces, layout({ ...under(data.curves), xaxis: axis(last(data.time)), yaxis: axis(safe(page.metric), { range: span(y) || whole }) })];
    },

    // Of several sweeps: the best score at each moment against the training until then.
    found(data, page) {
      const traces = data.curves.map((curve) => ({
        x: curve.x, y: curve.y, customdata: curve.trials, mode: curve.x.length < 2 ? "markers" : "lines", name: named(curve),
        line: { shape: "hv", ...line(curve.place) }, hovertemplate: `${named(curve)}, trial %{customdata}<br>%{y:.5g} after %{x:.5g}<extra></extra>`,
      }));
      const y = data.curves.flatMap((curve) => curve.y);
      return [traces, layout({ ...under(data.curves), xaxis: axis(safe(data.spent), { rangemode: "tozero" }), yaxis: axis(safe(page.metric), { range: span(y) }) })];
    },

    // The share of the box around the present front that the front had below it.
    growth(data) {
      const trace = {
        x: data.x, y: data.y, customdata: data.trials, mode: data.x.length < 2 ? "markers" : "lines", line: { shape: "hv", color: color("accent"), width: 2.5 },
        hovertemplate: "%{y:.3f} after %{x:.5g}<br>%{customdata} trials on the front<extra></extra>",
      };
      return [[trace], layout({ xaxis: axis(safe(data.spent), { rangemode: "tozero" }), yaxis: axis("share of the box", { range: [0, 1] }) })];
    },

    front(data, page) {
      const rows = range(data.trials.length);
      const some = (wanted, style, name) => ({
        x: rows.filter(wanted).map((row) => data.x[row]), y: rows.filter(wanted).map((row) => data.y[row]), name,
        text: rows.filter(wanted).map((row) => `trial ${data.trials[row]}: ${number(data.y[row])}, ${number(data.x[row])}<br>${wrap(data.settings[row])}`),
        hoverinfo: "text", ...style,
      });
      const path = rows.filter((row) => data.front[row]).sort((a, b) => data.x[a] - data.x[b]);
      const traces = [
        some((row) => data.breaks[row], { mode: "markers", marker: { symbol: "x-thin", size: 7, line: { width: 1.5, color: color("bad") } } }, "breaks a constraint"),
        some((row) => !data.breaks[row] && !data.front[row], { mode: "markers", marker: { size: 7, color: color("plain") } }, "others"),
        { x: path.map((row) => data.x[row]), y: path.map((row) => data.y[row]), mode: "lines", line: { color: color("accent"), dash: "dot", width: 1.2 }, hoverinfo: "skip", showlegend: false },
        some((row) => data.front[row], { mode: "markers", marker: { size: 11, color: color("accent") } }, "the front"),
      ].filter((trace) => trace.x.length);
      return [traces, layout({
        ...below(3), xaxis: axis(`${safe(data.name)} (${data.mode})`), yaxis: axis(`${safe(page.metric)} (${page.mode})`),
      })];
    },
  };

  const shortened = (name) => (name.length > 40 ? name.slice(0, 39) + "…" : name);
  const named = (curve) => safe(shortened(curve.name));
  const line = (place) => ({ color: palette()[place % 6], dash: ["solid", "dash", "dot", "dashdot"][Math.floor(place / 6) % 4], width: 2.2 });
  // Room below the axis for the names of sweeps, which the legend puts into columns of equal width.
  const under = (curves) => {
    const longest = Math.max(...curves.map((curve) => shortened(curve.name).length)) * 6.5 + 48;
    const rows = Math.ceil(curves.length / Math.max(1, Math.floor(widest() / longest)));
    return { showlegend: true, margin: { l: 8, r: 8, t: 8, b: 50 + 19 * rows } };
  };
  const percent = (share) => (share < 0.005 ? "" : Math.round(share * 100) + " %");
  const wrap = (words) => safe(words).replace(/(.{50}\S*)\s/g, "$1<br>");
  const powers = (low, high) => {
    const ticks = logticks(low, high);
    return ticks.length > 1 ? { tickvals: ticks, ticktext: ticks.map(number) } : { nticks: 4 };
  };
  const mix = (share) => {
    const part = (name) => color(name).match(/\w\w/g).map((pair) => parseInt(pair, 16));
    const [from, to, where] = share < 0.55 ? ["scale-0", "scale-1", share / 0.55] : ["scale-1", "scale-2", (share - 0.55) / 0.45];
    const end = part(to);
    return `rgb(${part(from).map((value, index) => Math.round(value + (end[index] - value) * where)).join(",")})`;
  };

  // Where the values of an axis lie from 0 to 1, a lane below for trials without it, ticks, and how it is drawn alone.
  const place = (one, count) => {
    const absent = one.values.includes(null), base = absent ? 0.12 : 0;
    if (one.labels) {
      const lanes = one.labels.length, at = (index) => base + (1 - base) * (lanes > 1 ? index / (lanes - 1) : 0.5);
      return {
        name: one.name, at: one.values.map((value) => (value === null ? 0 : at(value))), raw: (row) => one.values[row],
        ticks: [...one.labels.map((label, index) => [at(index), safe(label)]), ...(absent ? [[0, "absent"]] : [])],
        label: (row) => (one.values[row] === null ? "absent" : safe(one.labels[one.values[row]])),
        axis: { tickangle: "auto", tickvals: range(lanes), ticktext: one.labels.map(safe), range: [-0.6, lanes - 0.4] },
      };
    }
    const turn = one.log ? Math.log10 : (value) => value, low = turn(one.low), high = turn(one.high);
    const at = (value) => base + (1 - base) * (high > low ? (turn(value) - low) / (high - low) : 0.5);
    const between = one.log ? logticks(one.low, one.high).filter((tick) => at(tick) > 0.1 + base && at(tick) < 0.9) : [];
    const ends = high > low ? [one.low, ...(one.log ? between : [(one.low + one.high) / 2]), one.high] : [one.low];
    return {
      name: one.name, at: one.values.map((value) => (value === null ? 0 : at(value))), raw: (row) => one.values[row],
      ticks: [...ends.map((value) => [at(value), number(value)]), ...(absent ? [[0, "absent"]] : [])],
      label: (row) => number(one.values[row]), axis: one.log ? { type: "log", ...powers(one.low, one.high) } : {},
    };
  };

  // Whether the names of rungs must stand upright, or they would run into each other; a letter is some 7 pixels wide.
  const stands = (data) => {
    const room = widest() - 7 * Math.max(...data.names.map((pair) => pair.join(" × ").length));
    const longest = Math.max(...data.levels.map((level) => Math.max(`${level.at}`.length, `${level.trials} trials`.length)));
    return 7 * (longest + 1) * data.levels.length > room;
  };
  const height = (kind, data) => {
    const small = phone();
    switch (kind) {
      case "learning":
      case "best_curves": return small ? 380 : paper() ? 370 : 440;
      case "parallel": return small ? 90 + 74 * (data.axes.length + 1) : paper() ? 340 : 420;
      case "importance": return 40 + 30 * (data.names.length + 1);
      case "levels": return Math.max(64, 32 * data.names.length) + (stands(data) ? 130 : 66);
      case "slice": return 250;
      case "timeline": return Math.min(900, (data.levels.length ? 140 : 90) + data.lanes * (small ? 14 : data.lanes > 24 ? 8 : data.lanes > 10 ? 13 : 22));
      case "lineage": return Math.min(1200, 80 + 16 * data.rows);
      case "rungs": return 260;
      default: return small || paper() ? 340 : 400;
    }
  };

  const start = async () => {
    const page = JSON.parse(await unzip("data"));
    const boxes = [...document.querySelectorAll("[data-chart]")];
    const source = (box) => {
      const index = box.dataset.index;
      const from = { parallel: "points", slice: "points", levels: "importance", rungs: "timing", timeline: "timing" };
      const data = page[from[box.dataset.chart] || box.dataset.chart];
      return box.dataset.chart === "front" ? data[Number(index)] : data;
    };
    for (const box of boxes) box.style.minHeight = height(box.dataset.chart, source(box)) + "px";
    const library = document.createElement("script");
    library.textContent = await unzip("library");
    document.head.append(library);
    const drawn = new Set();
    const draw = (box) => {
      const kind = box.dataset.chart, data = source(box);
      const extra = kind === "slice" ? Number(box.dataset.index) : Number(box.dataset.share || 1);
      const [traces, shape] = pictures[kind](data, page, extra);
      const config = {
        // Named one by one: one of the others would send the picture to a service of the library's makers.
        responsive: true, displaylogo: false, displayModeBar: phone() || kind === "slice" ? false : "hover",
        modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], doubleClick: "reset",
        toImageButtonOptions: { filename: kind, scale: 2 },
      };
      drawn.add(box);
      const width = paper() ? box.clientWidth : undefined; // else Plotly finds it
      return Plotly.react(box, traces, { ...shape, height: height(kind, data), width }, config);
    };
    for (const button of document.querySelectorAll("button[data-share]")) {
      button.addEventListener("click", () => {
        const box = document.querySelector('[data-chart="parallel"]');
        box.dataset.share = button.dataset.share;
        for (const other of document.querySelectorAll("button[data-share]")) other.setAttribute("aria-pressed", String(other === button));
        draw(box);
      });
    }
    const again = () => { for (const box of drawn) draw(box); };
    // On paper: every picture, as wide as a sheet and by day.
    const print = (begins) => {
      root.classList.toggle("paper", begins);
      for (const box of boxes) draw(box);
      if (!begins) for (const box of boxes) Plotly.Plots.resize(box);
    };
    addEventListener("beforeprint", () => print(true));
    addEventListener("afterprint", () => print(false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    matchMedia("(max-width: 599px)").addEventListener("change", again);
    const watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
    }, { rootMargin: "400px" });
    if (all) for (const box of boxes) await draw(box);
    else for (const box of boxes) watcher.observe(box);
    root.dataset.drawn = String(drawn.size);
  };

  const wait = Number(root.dataset.reload || 0);
  if (wait) setTimeout(() => location.reload(), 1000 * wait);
  start().catch((error) => {
    const line = document.getElementById("trouble");
    line.textContent = "The pictures could not be drawn (" + error.message + "); a browser of 2023 or later is needed.";
    console.error(error);
  });
})();

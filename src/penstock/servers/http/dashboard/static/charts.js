// The charts of a queue: drawn once from what the page brought, then one point more with each sample.
"use strict";

(() => {
  const STEPS = [1, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200];
  // Columns of a row: time, waiting, in progress, oldest, sent, finished, failed attempts; null interrupts a line.
  const CHARTS = {
    depth: [["waiting", 1, "--chart-1"], ["in progress", 2, "--chart-2"]],
    rates: [["sent", 4, "--chart-1"], ["finished", 5, "--chart-3"], ["failed attempts", 6, "--chart-4"]],
    age: [["oldest", 3, "--chart-2"]],
  };
  let rows = [];
  let isLong = false;
  let seconds = 300;
  let drawn = [];

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const short = (value) => value == null ? "" : Math.abs(value) >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M`
    : Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : `${+value.toPrecision(3)}`;

  const clock = (seconds, long) => new Date(seconds * 1000).toISOString().slice(11, long ? 16 : 19);

  // The axis shows the time that it says, however much of it was looked at: it ends with the last look.
  function shown() {
    const end = rows.length ? rows[rows.length - 1][0] : Date.now() / 1000;
    return [end - seconds, end];
  }

  function columns(lines) {
    return [rows.map((row) => row[0]), ...lines.map(([, column]) => rows.map((row) => row[column]))];
  }

  function options(lines, width) {
    const axis = {
      stroke: colour("--muted"), font: "11px Inter, system-ui, sans-serif",
      grid: {stroke: colour("--line"), width: 1}, ticks: {show: false},
    };
    return {
      width, height: 170, cursor: {points: {size: 6}, drag: {x: false, y: false}},
      hooks: {setScale: [(chart, key) => { if (key === "x") chart.root.dataset.seconds = Math.round(chart.scales.x.max - chart.scales.x.min); }]},
      scales: {x: {range: shown}, y: {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]}},
      axes: [{...axis, space: 72, size: 28, incrs: STEPS, values: (_, ticks) => ticks.map((tick) => clock(tick, isLong))}, {...axis, size: 46, values: (_, ticks) => ticks.map(short)}],
      series: [{label: "UTC", value: (_, tick) => tick == null ? "" : clock(tick)}, ...lines.map(([label, , name]) => ({
        label, stroke: colour(name), width: 1.75, points: {show: false}, value: (_, value) => short(value),
        fill: lines.length === 1 ? colour(`${name}-soft`) : undefined,
      }))],
    };
  }

  function draw() {
    drawn.forEach(([chart]) => chart.destroy());
    drawn = [...document.querySelectorAll("#charts figure")].map((figure) => {
      const lines = CHARTS[figure.dataset.chart];
      const place = figure.querySelector("div");
      return [new uPlot(options(lines, place.clientWidth || 300), columns(lines), place), lines, place];
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const charts = document.getElementById("charts");
    if (!charts) return;
    rows = JSON.parse(charts.dataset.rows);
    isLong = charts.dataset.range === "long";
    seconds = Number(charts.dataset.seconds);
    draw();
    document.addEventListener("penstock:theme", draw);
    new ResizeObserver(() => drawn.forEach(([chart, , place]) => chart.setSize({width: place.clientWidth, height: 170}))).observe(charts);
    document.addEventListener("penstock:chart", ({detail: row}) => {
      if (isLong || (rows.length && row[0] <= rows[rows.length - 1][0])) return;
      rows = [...rows, row].filter(([at]) => at >= row[0] - seconds);
      drawn.forEach(([chart, lines]) => chart.setData(columns(lines)));
    });
  });
})();

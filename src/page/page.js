(() => {
  "use strict";
  const number = text => parseFloat(text.replace(/,/g, ""));

  // A click on the head of a column sorts by it.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isText = head.classList.contains("text");
        const now = head.getAttribute("aria-sort");
        const down = now ? now === "ascending" : !isText;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = row => row.cells[column].textContent;
        const compare = (a, b) => {
          const [x, y] = [number(a), number(b)];
          if (isNaN(x) || isNaN(y)) return isNaN(x) && isNaN(y) ? a.localeCompare(b, "en", {numeric: true}) : isNaN(x) ? 1 : -1;
          return down ? y - x : x - y;
        };
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => compare(value(a), value(b)));
        if (down && rows.length && isNaN(number(value(rows[0])))) rows.reverse();
        table.tBodies[0].append(...rows);
      });
    });
  }

  // Pointing at a chart shows the row of its data that belongs there.
  for (const figure of document.querySelectorAll("figure.chart[data-nearest]")) {
    const svg = figure.querySelector("svg"), table = figure.querySelector("table");
    if (!svg || !table || !svg.dataset.plot) continue;
    const plot = svg.parentElement, kind = figure.dataset.nearest;
    const [left, top, width, height, x0, x1, xLog, y0, y1, yLog] = svg.dataset.plot.split(",").map(Number);
    const heads = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const drawn = (text, log) => log ? Math.log10(number(text)) : number(text);
    let places = null;
    const tip = document.createElement("div"), cross = document.createElement("div");
    tip.className = "tip";
    cross.className = "cross";
    const hide = () => { tip.remove(); cross.remove(); };
    const show = event => {
      const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
      const x = ((event.clientX - box.left) / scale - left) / width;
      const y = ((event.clientY - box.top) / scale - top) / height;
      if (x < -0.02 || x > 1.02 || y < -0.05 || y > 1.05) return hide();
      places ||= rows.map(row => ({
        x: (drawn(row.cells[0].textContent, xLog) - x0) / (x1 - x0),
        y: kind === "point" ? 1 - (drawn(row.cells[1].textContent, yLog) - y0) / (y1 - y0) : 0,
      }));
      let best = 0;
      const within = share => Math.min(rows.length - 1, Math.max(0, Math.floor(share * rows.length)));
      if (kind === "row" || kind === "column") {
        best = within(kind === "row" ? y : x);
      } else if (kind === "span") {
        places.forEach((place, index) => { if (place.x <= x) best = index; });
      } else {
        const far = place => Math.abs(place.x - x) + (kind === "point" ? Math.abs(place.y - y) : 0);
        places.forEach((place, index) => { if (!(far(place) >= far(places[best]))) best = index; });
      }
      const cells = rows[best].cells;
      tip.replaceChildren(...heads.map((head, index) => {
        const line = document.createElement("div"), name = document.createElement("span"), value = document.createElement("span");
        name.textContent = head;
        value.textContent = cells[index] ? cells[index].textContent : "";
        line.append(name, value);
        return line;
      }));
      plot.append(tip);
      const isPlace = kind === "x" || kind === "point", at = isPlace ? places[best].x : x;
      const px = (left + Math.min(1, Math.max(0, at)) * width) * scale;
      if (isPlace) {
        cross.style.left = px + "px";
        cross.style.top = top * scale + "px";
        cross.style.height = height * scale + "px";
        plot.append(cross);
      }
      const room = plot.clientWidth - tip.offsetWidth;
      const beside = px + 12 > room ? px - 12 - tip.offsetWidth : px + 12;
      tip.style.left = Math.max(0, Math.min(room, beside)) + "px";
      tip.style.top = Math.max(0, (top + y * height) * scale - tip.offsetHeight - 10) + "px";
    };
    plot.addEventListener("pointermove", show);
    plot.addEventListener("pointerdown", show);
    plot.addEventListener("pointerleave", hide);
  }
})();

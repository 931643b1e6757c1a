"use strict";
{
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const make = (tag, values) => Object.assign(document.createElement(tag), values);

  // Copying: a browser without the clipboard of a page, as some are for files, gets the older way.
  const copy = async (text, button) => {
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.body.appendChild(make("textarea", { value: text }));
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  };
  const textOf = (cell) => cell.textContent.trim();
  const csv = (table) => all("tr", table).map((row) => [...row.cells].map((cell) => {
    const text = textOf(cell);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";
  for (const part of all(".scroll")) {
    const button = make("button", { type: "button", className: "copy", textContent: "copy as CSV" });
    button.addEventListener("click", () => copy(csv(part.querySelector("table")), button));
    part.after(button);
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  }
  for (const figures of all(".figures")) {
    const button = make("button", { type: "button", className: "copy", textContent: "copy as text" });
    button.addEventListener("click", () => copy(figures.textContent, button));
    figures.after(button);
  }

  // Tables: a heading sorts its column, numbers as numbers.
  for (const table of all("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    const sort = (head, column) => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => { const text = textOf(row.cells[column]); return text === "n/a" ? -Infinity : text; };
      const compare = (a, b) => {
        const [x, y] = [parseFloat(key(a)), parseFloat(key(b))];
        return Number.isNaN(x) || Number.isNaN(y) ? String(key(a)).localeCompare(String(key(b))) : x - y || 0;
      };
      const rows = [...table.tBodies[0].rows].sort(compare);
      table.tBodies[0].append(...(down ? rows.reverse() : rows));
    };
    heads.forEach((head, column) => {
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      head.addEventListener("click", () => sort(head, column));
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head, column); });
    });
  }

  // Gallery: filters, order, keyboard, and one image enlarged.
  const form = document.querySelector("form.tools");
  if (form) {
    const grid = form.nextElementSibling;
    const shots = all(".shot", grid);
    const facts = new Map(shots.map((shot, place) => [shot, {
      place,
      objects: shot.dataset.objects.split(" ").filter(Boolean).map((token) => token.split(".")),
      values: shot.dataset.values.split(" ").map(Number),
      text: `${shot.dataset.search} ${shot.textContent}`.toLowerCase(),
    }]));
    const bounded = all("[data-above], [data-up-to]", grid);
    let drawn = form.elements.threshold?.value;
    const chosen = (name) => form.elements[name]?.value ?? "";
    const visible = () => [...grid.children].filter((shot) => !shot.hidden);
    const apply = () => {
      const [text, label, kind, size] = ["text", "label", "kind", "size"].map(chosen);
      const fits = ([itsKind, itsLabel, itsSize]) =>
        (!kind || itsKind === kind) && (!label || itsLabel === label) && (!size || itsSize === size);
      for (const [shot, fact] of facts) {
        const found = (!kind && !label && !size) || fact.objects.some(fits);
        const undecided = !form.elements.undecided?.checked || !("decided" in shot.dataset);
        shot.hidden = !(found && undecided && fact.text.includes(text.toLowerCase()));
      }
      const order = chosen("sort");
      const sign = order.endsWith("-") ? -1 : 1;
      const value = (shot) => facts.get(shot).values[parseInt(order, 10)];
      const by = (a, b) => sign * (value(a) - value(b)) || facts.get(a).place - facts.get(b).place;
      const sorted = [...shots].sort(order ? by : (a, b) => facts.get(a).place - facts.get(b).place);
      if (sorted.some((shot, place) => shot !== grid.children[place])) grid.append(...sorted);  // which loses the focus
      grid.classList.toggle("no-truth", form.elements.truth && !form.elements.truth.checked);
      grid.classList.toggle("no-names", form.elements.names && !form.elements.names.checked);
      const threshold = form.elements.threshold;
      if (threshold && threshold.value !== drawn) {
        drawn = threshold.value;
        const least = Number(drawn);
        threshold.parentNode.querySelector("b").textContent = Number(least.toPrecision(3));
        for (const box of bounded) {
          const { above, upTo } = box.dataset;
          box.toggleAttribute("hidden", (above !== undefined && least <= Number(above)) || least > Number(upTo ?? least));
        }
      }
      form.querySelector("output").textContent = `${visible().length} of ${shots.length} images`;
    };
    form.hidden = false;
    all(".hint").forEach((hint) => { hint.hidden = false; });
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
    apply();

    // A finding sets the filters to the images that show it.
    for (const link of all("a[data-filter]")) {
      link.addEventListener("click", () => {
        form.reset();
        for (const [name, value] of new URLSearchParams(link.dataset.filter)) {
          if (form.elements[name]) form.elements[name].value = value;
        }
        const threshold = form.elements.threshold;  // findings are about all boxes
        if (threshold) threshold.value = threshold.min;
        form.closest("details").open = true;
        apply();
      });
    }

    const dialog = document.body.appendChild(make("dialog", { tabIndex: -1 }));
    let current = null;
    const show = (shot) => {
      current = shot;
      const bar = make("div", { className: "bar" });
      const add = (text, act) => {
        bar.append(make("button", { type: "button", textContent: text, onclick: act }));
      };
      add("← previous", () => step(-1));
      add("next →", () => step(1));
      add("larger ( z )", () => dialog.classList.toggle("large"));
      add("close", () => dialog.close());
      const copied = shot.cloneNode(true);
      copied.className = "";
      copied.removeAttribute("tabindex");
      all("details", copied).forEach((details) => { details.open = true; });
      dialog.replaceChildren(bar, copied);
      dialog.setAttribute("aria-label", shot.querySelector("figcaption").textContent);
      if (!dialog.open) dialog.showModal();
      dialog.focus();
    };
    const step = (by) => {
      const list = visible();
      show(list[(list.indexOf(current) + by + list.length) % list.length]);
    };
    dialog.addEventListener("close", () => { dialog.classList.remove("large"); current.focus(); });
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "ArrowRight") step(1);
      else if (event.key === "ArrowLeft") step(-1);
      else if (event.key === "z") dialog.classList.toggle("large");
    });
    grid.addEventListener("click", (event) => {
      const shot = event.target.closest(".shot");
      if (shot && event.target.closest("svg, img") && !event.target.closest("a")) show(shot);
    });
    grid.addEventListener("keydown", (event) => {
      if (event.target.className !== "shot") return;
      const list = visible();
      const columns = getComputedStyle(grid).gridTemplateColumns.split(" ").length;
      const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
      if (event.key === "Enter") show(event.target);
      else if (event.key in moves) list[list.indexOf(event.target) + moves[event.key]]?.focus();
      else return;
      event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.target.matches("input, select, textarea") || dialog.open) return;
      event.preventDefault();
      form.closest("details").open = true;
      form.elements.text.focus();
    });
  }

  // A link to a part opens it, and paper has no folds.
  const unfold = () => {
    const part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (part) all("details", part).slice(0, 1).forEach((details) => { details.open = true; });
  };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => all("details").forEach((details) => { details.open = true; }));
}

// Decisions about suspicions: made by key or button, kept in the browser, saved to and loaded from a file.
{
  const root = document.querySelector("[data-review]");
  const form = document.querySelector("form.tools");
  const grid = document.querySelector(".images");
  if (root && form && grid) {
    const all = (query, within = document) => [...within.querySelectorAll(query)];
    const make = (tag, values) => Object.assign(document.createElement(tag), values);
    const { review, ground_truth, choices: names } = JSON.parse(root.dataset.review);
    const recordOf = (part) => JSON.parse(part.dataset.record);
    const keyOf = (record) => JSON.stringify([record.image_id, record.object, record.answer]);
    const keyIn = (part) => keyOf(recordOf(part.querySelector(".case")));
    const shots = new Map(all(".shot", grid).map((shot) => [keyIn(shot), shot]));
    const decisions = new Map();
    const earlier = [];  // key and former choice of each decision, for undo
    let chosen = null;

    // Kept in the browser, where it allows that.
    const place = `coordexp.review.${review}`;
    let kept = true;
    const keep = () => {
      try {
        localStorage.setItem(place, JSON.stringify([...decisions]));
      } catch {
        kept = false;
      }
    };
    try {
      for (const [key, choice] of JSON.parse(localStorage.getItem(place) ?? "[]")) {
        if (shots.has(key) && choice in names) decisions.set(key, choice);
      }
    } catch {
      kept = false;
    }

    // The tools
    const state = make("output", { className: "decided" });
    const only = make("input", { type: "checkbox", name: "undecided" });
    const label = make("label");
    label.append(only, " undecided only");
    const save = make("button", { type: "button", textContent: "save decisions" });
    const load = make("button", { type: "button", textContent: "load decisions" });
    const file = make("input", { type: "file", accept: ".json,application/json", hidden: true });
    form.append(label, save, load, file, state);
    let told = "";
    const tell = () => {
      const lost = kept ? "" : " (this browser keeps none: save them before you close the page)";
      const shown = visible();
      const part = shown.length < shots.size ? ` (${decisions.size} of all ${shots.size})` : "";
      state.textContent = `${shown.filter(choiceOf).length} of ${shown.length} decided${part}${lost}${told}`;
      if (!shown.includes(chosen)) choose(shown[0]);
    };
    const visible = () => all(".shot:not([hidden])", grid);
    const choiceOf = (part) => decisions.get(keyIn(part));
    const choose = (shot) => {
      chosen?.removeAttribute("aria-current");
      shot?.setAttribute("aria-current", "true");
      chosen = shot;
    };
    grid.addEventListener("focusin", (event) => choose(event.target.closest(".shot")));
    form.addEventListener("input", tell);
    form.addEventListener("reset", () => setTimeout(tell));

    const buttons = (part) => {
      for (const choice of part.dataset.choices.split(" ")) {
        const [key, text] = names[choice];
        const button = make("button", { type: "button", textContent: `${text} ( ${key} )` });
        button.dataset.choice = choice;
        part.querySelector(".choices").append(button);
      }
    };
    const mark = () => {
      for (const part of all(".shot, dialog[open]")) {
        const choice = choiceOf(part);
        part.toggleAttribute("data-decided", choice !== undefined && choice !== "later");
        for (const button of all("button[data-choice]", part)) {
          button.setAttribute("aria-pressed", String(button.dataset.choice === choice));
        }
      }
      form.dispatchEvent(new Event("input"));  // filters and counts again
    };
    const decide = (key, choice) => {
      if (choice) decisions.set(key, choice);
      else decisions.delete(key);
      told = "";
      keep();
      mark();
    };
    const show = (shot) => {
      if (!document.querySelector("dialog[open]")) shot.focus();
      else shot.querySelector("svg").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    };
    all(".case").forEach(buttons);
    mark();
    chosen?.focus({ preventScroll: true });

    document.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-choice]");
      if (!button) return;
      const key = keyOf(recordOf(button.closest(".case")));
      earlier.push([key, decisions.get(key)]);
      decide(key, button.getAttribute("aria-pressed") === "true" ? undefined : button.dataset.choice);
    });
    const byKey = Object.fromEntries(Object.entries(names).map(([choice, [key]]) => [key, choice]));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
      const part = document.querySelector("dialog[open]") ?? chosen;
      const choice = byKey[event.key];
      if (event.key === "u" && earlier.length) {
        const [key, before] = earlier.pop();
        decide(key, before);
        show(shots.get(key));
      } else if (choice && part?.querySelector(".case").dataset.choices.split(" ").includes(choice)) {
        const key = keyIn(part);
        const list = visible();
        const next = list.slice(list.indexOf(shots.get(key)) + 1).find((other) => !choiceOf(other));
        earlier.push([key, decisions.get(key)]);
        decide(key, choice);
        if (next) show(next);
      } else return;
      event.preventDefault();
    });

    // Files
    save.addEventListener("click", () => {
      const of = (key) => recordOf(shots.get(key).querySelector(".case"));
      const made = [...decisions].map(([key, choice]) => ({ ...of(key), decision: choice }));
      const text = JSON.stringify({ version: 1, review, ground_truth, decisions: made }, null, 1) + "\n";
      const link = make("a", { download: "decisions.json" });
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    });
    load.addEventListener("click", () => file.click());
    file.addEventListener("change", async () => {
      if (!file.files.length) return;
      try {
        const found = JSON.parse(await file.files[0].text());
        let fit = 0;
        for (const item of found.decisions) {
          const key = keyOf(item);
          if (shots.has(key) && item.decision in names) {
            decisions.set(key, item.decision);
            fit += 1;
          }
        }
        told = `; ${fit} of ${found.decisions.length} loaded`;
        if (found.review !== review) told += ", from another review";
        keep();
      } catch {
        told = "; this file has no decisions";
      }
      file.value = "";
      mark();
    });
  }
}

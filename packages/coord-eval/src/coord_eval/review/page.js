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
    const records = new Map(all(".case").map((part) => [keyOf(recordOf(part)), recordOf(part)]));
    const decisions = new Map();

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
        if (records.has(key) && choice in names) decisions.set(key, choice);
      }
    } catch {
      kept = false;
    }

    // The tools
    const state = make("output", { className: "decided" });
    const only = make("input", { type: "checkbox" });
    const label = make("label");
    label.append(only, " undecided only");
    const save = make("button", { type: "button", textContent: "save decisions" });
    const load = make("button", { type: "button", textContent: "load decisions" });
    const file = make("input", { type: "file", accept: ".json,application/json", hidden: true });
    form.append(label, save, load, file, state);
    let told = "";
    const tell = () => {
      const lost = kept ? "" : " (this browser keeps none: save them before you close the page)";
      state.textContent = `${decisions.size} of ${records.size} decided${lost}${told}`;
    };
    const toggled = () => grid.classList.toggle("only-open", only.checked);
    only.addEventListener("change", toggled);
    form.addEventListener("reset", () => setTimeout(toggled));

    const buttons = (part) => {
      for (const choice of part.dataset.choices.split(" ")) {
        const [key, text] = names[choice];
        const button = make("button", { type: "button", textContent: `${text} ( ${key} )` });
        button.dataset.choice = choice;
        part.querySelector(".choices").append(button);
      }
    };
    const mark = () => {
      for (const part of all(".case")) {
        const choice = decisions.get(keyOf(recordOf(part)));
        for (const button of all("button", part)) {
          button.setAttribute("aria-pressed", String(button.dataset.choice === choice));
        }
      }
      tell();
    };
    const decide = (part, choice) => {
      if (choice && !part.dataset.choices.split(" ").includes(choice)) return false;
      const key = keyOf(recordOf(part));
      if (choice) decisions.set(key, choice);
      else decisions.delete(key);
      told = "";
      keep();
      mark();
      return true;
    };
    all(".case").forEach(buttons);
    mark();

    document.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-choice]");
      if (!button) return;
      const pressed = button.getAttribute("aria-pressed") === "true";
      decide(button.closest(".case"), pressed ? null : button.dataset.choice);
    });
    const byKey = Object.fromEntries(Object.entries(names).map(([choice, [key]]) => [key, choice]));
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
      if (!(event.key in byKey) && event.key !== "u") return;
      const dialog = document.querySelector("dialog[open]");
      const shot = document.activeElement.closest(".shot");
      const part = (dialog ?? shot)?.querySelector(".case");
      if (!part || !decide(part, event.key === "u" ? null : byKey[event.key])) return;
      event.preventDefault();
      if (event.key === "u") return;
      if (dialog) {
        dialog.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        mark();
      } else {
        const shots = all(".shot", grid).filter((other) => !other.hidden);
        const open = (other) => !all("[aria-pressed=true]", other).length;
        shots.slice(shots.indexOf(shot) + 1).find(open)?.focus();
      }
    });

    // Files
    save.addEventListener("click", () => {
      const made = [...decisions].map(([key, choice]) => ({ ...records.get(key), decision: choice }));
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
          if (records.has(key) && item.decision in names) {
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

// The section that is being read is marked in the list of sections; the menu closes once it was used.
const sectionLinks = new Map();
for (const link of findAll("nav a")) {
  const anchor = link.getAttribute("href").slice(1);
  sectionLinks.set(anchor, [...(sectionLinks.get(anchor) || []), link]);
}

let currentSection = null;
function markSection() {
  const line = Math.min(180, innerHeight / 3);
  const sections = findAll("main > section");
  let now = sections[0].id;
  for (const section of sections) {
    if (section.getBoundingClientRect().top <= line) now = section.id;
  }
  const isAtEnd = innerHeight + scrollY >= root.scrollHeight - 2;
  if (isAtEnd && scrollY > 0) now = sections.at(-1).id;
  if (now === currentSection) return;
  for (const link of sectionLinks.get(currentSection) || []) link.removeAttribute("aria-current");
  for (const link of sectionLinks.get(now) || []) {
    link.setAttribute("aria-current", "true");
    const list = link.closest("nav.side");
    if (list && list.scrollHeight > list.clientHeight) {
      list.scrollTop = link.offsetTop - list.clientHeight / 2;
    }
  }
  currentSection = now;
}

let isMarking = false;
function markSoon() {
  if (isMarking) return;
  isMarking = true;
  requestAnimationFrame(() => { isMarking = false; markSection(); });
}
if (sectionLinks.size) {
  addEventListener("scroll", markSoon, { passive: true });
  addEventListener("resize", markSoon);
  markSoon();
}


const menu = find("details.menu");
if (menu) {
  menu.addEventListener("click", (event) => {
    if (event.target.closest("a")) menu.open = false;
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) {
      menu.open = false;
      find("summary", menu).focus();
    }
  });
}

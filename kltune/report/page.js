"use strict";
// What the other scripts share.
const root = document.documentElement;
const find = (selector, within = document) => within.querySelector(selector);
const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];

// An element with attributes and children; text is always text.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Storage may be refused (a file, a strict browser): then nothing is remembered.
const memory = {
  read(store, key) {
    try { return window[store].getItem(key); } catch { return null; }
  },
  write(store, key, value) {
    try {
      if (value === null) window[store].removeItem(key); else window[store].setItem(key, value);
    } catch { /* not remembered */ }
  },
};

const print = find("#print");
if (print) print.addEventListener("click", () => window.print());

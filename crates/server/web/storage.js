// What this tab remembers. Without the browser's storage it remembers until the next reload.

const remembered = new Map();

export const storage = {
  get(name) {
    try {
      return sessionStorage.getItem(name) ?? undefined;
    } catch {
      return remembered.get(name);
    }
  },
  set(name, text) {
    remembered.set(name, text);
    try {
      sessionStorage.setItem(name, text);
    } catch {
      // It is full or switched off.
    }
  },
  remove(name) {
    remembered.delete(name);
    try {
      sessionStorage.removeItem(name);
    } catch {
      // As above.
    }
  },
};

// Scenarios of the conformance suite that fail, with the reason of each. The list is strict: a scenario that passes must not
// be in it.

export const EXPECTED_FAILURES = {
  '2025-11-25': {},
  '2026-07-28': {},
};

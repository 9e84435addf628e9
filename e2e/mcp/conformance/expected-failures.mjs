// Scenarios of the conformance suite that fail, with the reason of each. The list is strict: a scenario that passes must not
// be in it.

const QUESTIONS = 'questions of a server to a person are not supported';

export const EXPECTED_FAILURES = {
  '2025-11-25': {
    'elicitation-sep1034-client-defaults': QUESTIONS,
  },
  '2026-07-28': {
    'sep-2322-client-request-state': QUESTIONS,
  },
};

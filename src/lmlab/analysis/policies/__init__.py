"""How well policies act: errors of actions, returns that are reached, missions that succeed."""

-- In place of ate_by_segment where a release has no units.
SELECT error('this release has no units, so nothing can be sliced')

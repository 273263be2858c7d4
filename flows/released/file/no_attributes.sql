-- In place of ate_by where a release has no attributes.
SELECT error('this release publishes no attribute of units; ate_by_segment takes a table of yours')
